//! The program `holdline-rm`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let program = driver::Program {
        name: "holdline-rm",
        about: "Gate, back-to-back user agent and media gateway controller of Holdline",
        version: env!("CARGO_PKG_VERSION"),
        serve: rm::serve,
        check: rm::check,
        drain: rm::drain,
        apply: Some(rm::apply),
    };
    program.main()
}
