//! The program `holdline-mediagate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let program = driver::Program {
        name: "holdline-mediagate",
        about: "Media gateway of Holdline: forwards the calls' RTP",
        version: env!("CARGO_PKG_VERSION"),
        serve: mediagate::serve,
        check: mediagate::check,
        drain: mediagate::drain,
        apply: None,
    };
    program.main()
}
