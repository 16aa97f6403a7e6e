#![allow(unused)]

use celeriac::task;

#[derive(serde::Serialize)]
struct HalfWay;

struct Connection;

#[task]
async fn never_travels(half: HalfWay, connection: Connection) {
    let _ = (half, connection);
}

#[task]
fn not_send(shared: std::rc::Rc<u8>) {
    let _ = shared;
}

fn main() {}
