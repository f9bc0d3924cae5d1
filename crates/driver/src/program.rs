//! What every program is to its user: arguments, and how it ends.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::logging;
use crate::tls::command as certificates;

/// A program that is described by one configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Program<E> {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// Its version.
    pub version: &'static str,
    /// `--config FILE`: runs what the file describes until that ends.
    pub serve: fn(&Path) -> Result<(), E>,
    /// `check FILE`: says everything that is wrong in the file.
    pub check: fn(&Path) -> Result<(), E>,
    /// `drain FILE`: lets the process that the file describes give its work away.
    pub drain: fn(&Path) -> Result<(), E>,
    /// `apply FILE --config FILE`: gives the first file, a document of the cluster, to the process that
    /// the second one describes. With `--force` it is taken whatever harm it does, as far as that may be
    /// meant. Programs without such documents have none.
    pub apply: Option<Apply<E>>,
}

/// What a document and a configuration file are given to, and whether by force.
pub type Apply<E> = fn(&Path, &Path, bool) -> Result<(), E>;

impl<E: Into<Box<dyn Error + Send + Sync>>> Program<E> {
    /// Does what the arguments of this process ask for. What went wrong is
    /// written to standard error, in words and never as a trace of calls.
    pub fn main(&self) -> ExitCode {
        let mut arguments = self.command().get_matches();
        let done = match arguments.remove_subcommand() {
            Some((name, command)) if name == certificates::NAME => certificates::run(&command),
            Some((name, mut command)) => self.order(&name, &mut command).map_err(Into::into),
            None => (self.serve)(&file(&mut arguments, FILE)).map_err(Into::into),
        };
        let Err(error) = done else { return ExitCode::SUCCESS };
        logging::say(&format!("{}: {}", self.name, chain(&*error)));
        ExitCode::FAILURE
    }

    /// Does what a command with a configuration file asks for.
    fn order(&self, name: &str, command: &mut ArgMatches) -> Result<(), E> {
        match name {
            DRAIN => (self.drain)(&file(command, FILE)),
            APPLY => {
                let apply = self.apply.expect("only programs that have it know the word");
                let force = command.get_flag(FORCE);
                apply(&file(command, DOCUMENT), &file(command, FILE), force)
            }
            _ => (self.check)(&file(command, FILE)),
        }
    }

    fn command(&self) -> Command {
        let file = Arg::new(FILE)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .required(true)
            .help("The configuration file");
        let check = Command::new("check")
            .about("Says everything that is wrong in a configuration file, and does nothing else")
            .arg(file.clone());
        let drain = Command::new(DRAIN)
            .about("Tells the process that runs with this configuration file to drain and to end")
            .arg(file.clone());
        let document = Arg::new(DOCUMENT)
            .value_name("DOCUMENT")
            .value_parser(value_parser!(PathBuf))
            .required(true)
            .help("The cluster document");
        let force = Arg::new(FORCE)
            .long(FORCE)
            .action(ArgAction::SetTrue)
            .help("Takes it even where that harms the running cluster in a way that may be meant");
        let apply = Command::new(APPLY)
            .about("Gives a cluster document to the process that runs with a configuration file")
            .arg(document)
            .arg(file.clone().long("config"))
            .arg(force);
        Command::new(self.name)
            .about(self.about)
            .version(self.version)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .arg(file.long("config"))
            .subcommand(check)
            .subcommand(drain)
            .subcommand(certificates::command())
            .subcommands(self.apply.map(|_| apply))
    }
}

fn file(arguments: &mut ArgMatches, name: &str) -> PathBuf {
    arguments.remove_one(name).expect("the argument is required")
}

/// Returns what went wrong and why, in one line each level.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(why) = source {
        text = format!("{}: {why}", text.trim_end());
        source = why.source();
    }
    text.trim_end().to_owned()
}

const FILE: &str = "file";
const DOCUMENT: &str = "document";
const DRAIN: &str = "drain";
const APPLY: &str = "apply";
const FORCE: &str = "force";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LoadError;

    const PROGRAM: Program<LoadError> = Program {
        name: "program",
        about: "Does nothing.",
        version: "1",
        serve: |_| Ok(()),
        check: |_| Ok(()),
        drain: |_| Ok(()),
        apply: None,
    };

    #[test]
    fn a_file_is_run_or_checked_and_nothing_else_is_understood() {
        let knows = |program: &Program<LoadError>, arguments: &[&str]| {
            let arguments = ["program"].iter().chain(arguments);
            program.command().try_get_matches_from(arguments).is_ok()
        };
        let asks = |arguments: &[&str]| knows(&PROGRAM, arguments);

        PROGRAM.command().debug_assert();
        assert!(asks(&["--config", "a.toml"]) && asks(&["check", "a.toml"]));
        assert!(asks(&["drain", "a.toml"]));
        assert!(!asks(&[]) && !asks(&["check"]) && !asks(&["a.toml"]));
        assert!(!asks(&["--config", "a.toml", "check", "b.toml"]));
        assert!(asks(&["certificates", "tls", "--nodes", "1,2,31", "--days", "30"]));
        assert!(!asks(&["certificates", "tls"]) && !asks(&["certificates", "tls", "--nodes", "0"]));

        let apply = ["apply", "d.toml", "--config", "a.toml"];
        let applies = Program { apply: Some(|_, _, _| Ok(())), ..PROGRAM };
        applies.command().debug_assert();
        assert!(knows(&applies, &apply) && !asks(&apply));
        assert!(knows(&applies, &[&apply[..], &["--force"]].concat()));
        assert!(!knows(&applies, &apply[..2]) && knows(&applies, &["check", "a.toml"]));
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let why = crate::config::load(Path::new("no/such.toml"), |_| Ok(())).unwrap_err();
        let text = chain(&why);
        assert!(text.starts_with("no/such.toml: No such file"), "{text}");
    }
}
