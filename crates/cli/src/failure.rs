use std::io;
use std::process::ExitCode;

use celeriac::core::{Error, InvalidArguments};
use serde::Serialize;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: everything was done, or the reader of the output has gone away and wants no more of it.
    Done,
    /// 1: the command was understood and did not, or not wholly, succeed.
    Failed,
    /// 2: the command line itself is wrong; no store can make it right.
    Usage,
}

/// Why the program stops: a stable code for programs, a sentence for people, and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    message: String,
    exit: Exit,
    /// Which line of an input file.
    line: Option<u64>,
}

impl Failure {
    /// The command was understood and did not succeed.
    pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), exit: Exit::Failed, line: None }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: "usage", message: message.into(), exit: Exit::Usage, line: None }
    }

    /// The same, about a line of an input file.
    pub(crate) const fn at_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self.exit = Exit::Failed;
        self
    }

    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether there is nobody to tell: the reader of the output has closed it.
    pub(crate) fn is_silent(&self) -> bool {
        self.exit == Exit::Done
    }

    /// As people read it, without the word "error".
    pub(crate) fn text(&self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// As programs read it.
    pub(crate) fn json(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Body {
            code: &'static str,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<u64>,
        }
        #[derive(Serialize)]
        struct Envelope {
            error: Body,
        }
        Envelope { error: Body { code: self.code, message: self.message.clone(), line: self.line } }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::Usage => Self::from(2),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error {
            Error::UnsupportedUrl { .. }
            | Error::Invalid { .. }
            | Error::InvalidName(_)
            | Error::Arguments { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Self { code: error.code().as_str(), message: error.full(), exit, line: None }
    }
}

impl From<InvalidArguments> for Failure {
    fn from(error: InvalidArguments) -> Self {
        Self::failed("arguments", error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// For the standard output alone: other files have a name that belongs into the message.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: "closed", message: String::new(), exit: Exit::Done, line: None };
        }
        Self::failed("output", format!("cannot write the output: {error}"))
    }
}
