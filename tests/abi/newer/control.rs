
operations! {
    /// An operation that today's ABI does not have.
    Ping = 0x7e00: Nothing => Nothing;
}

/// An event that today's ABI does not have.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Pinged {}

impl Event for Pinged {
    const OP: u32 = 0x7e01;
}
