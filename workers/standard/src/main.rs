//! The standard worker: `worker --queues high,default`.

use std::process::ExitCode;

fn main() -> ExitCode {
    celeriac_standard::main()
}
