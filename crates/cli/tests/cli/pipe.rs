use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::program::Program;

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let program = Program::with_task();
    let input: String = (0..1_000)
        .map(|n| format!("{{\"task\": \"thumbnail\", \"args\": {{\"path\": \"{n}\", \"width\": {n}}}}}\n"))
        .collect();
    program.run_with_input(&["enqueue", "--from", "-"], input.as_bytes());
    for words in [
        vec!["jobs", "list", "--limit", "1000"],
        vec!["jobs", "list", "--limit", "1000", "--json"],
        vec!["--help"],
        vec!["completions", "bash"],
    ] {
        let mut child =
            program.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // One line is read and the pipe is closed, as `head -1` does it. What is printed is larger than a pipe.
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap_or(0);
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), errors.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn an_output_that_is_closed_from_the_start_is_no_error() {
    let program = Program::with_empty_store();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program.command(&["queues", "list"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
