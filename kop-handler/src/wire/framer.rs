//! Cuts a stream of bytes into request frames: a 4-byte length, then that many bytes.
//!
//! The framer owns the read buffer and says how it wants to be filled, so that a small frame needs one read and a
//! large one is received into memory of exactly its size. It must not know sockets, nor what a frame holds.

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// Length of the size field in front of each frame, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// Smallest frame that can be a request: key, version and correlation id, in bytes.
pub const MIN_FRAME_BYTES: usize = 8;

/// Bytes of the API key, at the start of a frame.
const KEY_BYTES: usize = 2;

/// Key of Produce, whose frames may be larger than others.
const PRODUCE: [u8; KEY_BYTES] = [0, 0];

/// How large frames may be, and how they are buffered. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Largest frame of Produce.
    pub produce: usize,
    /// Largest frame of any other request.
    pub other: usize,
    /// Size of the buffer that small frames share. Larger frames get memory of their own.
    pub front: usize,
}

/// A length field that no request can have. The stream cannot be read on: the connection has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Less than [`MIN_FRAME_BYTES`], or negative.
    #[error("frame length {0} is too small for a request")]
    TooSmall(i32),
    /// More than the limit.
    #[error("frame length {length} is above the limit of {limit} bytes")]
    TooLarge {
        /// Declared length in bytes.
        length: usize,
        /// The limit for this request in bytes.
        limit: usize,
    },
}

/// Frames out of a byte stream. See the module.
///
/// ```text
/// loop {
///     while let Some(frame) = framer.next_frame()? { … }
///     if let Some(length) = framer.pending() { take some of its bytes from the memory budget }
///     read at most those into framer.read_buffer(); 0 bytes read = end of stream
/// }
/// ```
#[derive(Debug)]
pub struct Framer {
    limits: FrameLimits,
    buffer: BytesMut,
    /// Length of the frame whose length field was read and found in bounds, without the field itself.
    pending: Option<usize>,
    /// The last frame was large: read only the next length, so that its body need not be moved.
    expect_large: bool,
}

impl Framer {
    /// A framer that refuses frames above the limits. It holds no memory before its first read.
    #[must_use]
    pub fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            buffer: BytesMut::new(),
            pending: None,
            expect_large: false,
        }
    }

    /// The next complete frame, without its length field. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`] as soon as a length field is out of bounds, before any of its body is buffered.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.pending.is_none() {
            self.pending = self.read_length()?;
        }
        let Some(length) = self.pending else {
            return Ok(None);
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        self.pending = None;
        self.expect_large = length > self.limits.front;
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Length in bytes of the frame that has begun and is not complete, once its length field is known.
    #[must_use]
    pub fn pending(&self) -> Option<usize> {
        self.pending
    }

    /// Bytes of that frame which are here.
    #[must_use]
    pub fn received(&self) -> usize {
        if self.pending.is_some() {
            self.buffer.len()
        } else {
            0
        }
    }

    /// Whether the stream stands between two frames. If not, an end of the stream cuts a frame short.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.pending.is_none() && self.buffer.is_empty()
    }

    /// Whether it holds no memory.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.buffer.capacity() == 0
    }

    /// Gives its memory back until the next read, if the stream stands between two frames.
    pub fn rest(&mut self) {
        if self.is_between_frames() {
            self.buffer = BytesMut::new();
        }
    }

    /// Where the next bytes of the stream go; never without room. Call [`Self::next_frame`] until it gives `None` first.
    pub fn read_buffer(&mut self) -> Limit<&mut BytesMut> {
        let room = match self.pending {
            Some(length) if length > self.limits.front => self.room_for_large(length),
            Some(length) => self.room_in_front(length.saturating_sub(self.buffer.len())),
            None if self.expect_large && self.buffer.is_empty() => {
                self.buffer = BytesMut::with_capacity(LENGTH_BYTES + KEY_BYTES);
                LENGTH_BYTES + KEY_BYTES
            }
            None => self.room_in_front(1),
        };
        (&mut self.buffer).limit(room)
    }

    /// Memory of exactly the frame's size; what came with the length field moves there.
    fn room_for_large(&mut self, length: usize) -> usize {
        if self.buffer.capacity() < length {
            let mut own = BytesMut::with_capacity(length);
            own.extend_from_slice(&self.buffer);
            self.buffer = own;
        }
        length.saturating_sub(self.buffer.len())
    }

    fn room_in_front(&mut self, at_least: usize) -> usize {
        // Below a quarter of the front it is renewed, so that reads stay large.
        let wanted = at_least.max(self.limits.front / 4).max(1);
        if self.buffer.capacity() - self.buffer.len() < wanted {
            // Takes the old memory again if no frame of it is alive, else allocates.
            self.buffer.reserve(self.limits.front.max(wanted));
        }
        self.buffer.capacity() - self.buffer.len()
    }

    fn read_length(&mut self) -> Result<Option<usize>, FrameError> {
        let Some((field, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let declared = i32::from_be_bytes(*field);
        let length = usize::try_from(declared).map_err(|_| FrameError::TooSmall(declared))?;
        if length < MIN_FRAME_BYTES {
            return Err(FrameError::TooSmall(declared));
        }
        let largest = self.limits.produce.max(self.limits.other);
        let limit = match rest.first_chunk::<KEY_BYTES>() {
            None if length > largest => largest,
            None => return Ok(None),
            Some(&PRODUCE) => self.limits.produce,
            Some(_) => self.limits.other,
        };
        if length > limit {
            return Err(FrameError::TooLarge { length, limit });
        }
        let _ = self.buffer.split_to(LENGTH_BYTES);
        Ok(Some(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: usize = 16 * 1024;

    fn limits(limit: usize) -> FrameLimits {
        FrameLimits {
            produce: limit,
            other: limit,
            front: FRONT,
        }
    }

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Feeds `stream` in pieces of at most `step` bytes and gathers the frames.
    fn run(stream: &[u8], step: usize, limit: usize) -> Result<Vec<Bytes>, FrameError> {
        let mut framer = Framer::new(limits(limit));
        let mut rest = stream;
        let mut frames = Vec::new();
        loop {
            while let Some(frame) = framer.next_frame()? {
                frames.push(frame);
            }
            if rest.is_empty() {
                return Ok(frames);
            }
            let mut buffer = framer.read_buffer();
            let room = buffer.remaining_mut();
            assert!(room > 0, "the framer must always have room");
            let take = room.min(step).min(rest.len());
            let (now, later) = rest.split_at(take);
            buffer.put_slice(now);
            rest = later;
        }
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let bodies: Vec<Vec<u8>> = [8, 9, 100, FRONT, FRONT + 1, 8, 70_000, 70_001, 8]
            .iter()
            .enumerate()
            .map(|(n, len)| vec![u8::try_from(n).unwrap(); *len])
            .collect();
        let stream: Vec<u8> = bodies.iter().flat_map(|b| frame(b)).collect();
        for step in [1, 3, 4, 5, 1000, usize::MAX] {
            let frames = run(&stream, step, 1 << 20).unwrap();
            assert_eq!(frames, bodies, "step {step}");
        }
    }

    #[test]
    fn a_large_frame_lies_in_memory_of_its_own_size() {
        let mut framer = Framer::new(limits(1 << 20));
        let stream = frame(&vec![7; 100_000]);
        framer.read_buffer().put_slice(&stream[..1000]);
        assert_eq!(framer.next_frame(), Ok(None));
        assert_eq!(framer.pending(), Some(100_000));
        let mut buffer = framer.read_buffer();
        assert_eq!(buffer.remaining_mut(), 100_000 - 996);
        buffer.put_slice(&stream[1000..]);
        assert_eq!(framer.next_frame().unwrap().unwrap().len(), 100_000);
        assert!(framer.is_between_frames());
        // The next read asks for a length only, so that a second large body is received in place.
        assert_eq!(
            framer.read_buffer().remaining_mut(),
            LENGTH_BYTES + KEY_BYTES
        );
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_before_its_body_arrives() {
        for (length, error) in [
            (-1, FrameError::TooSmall(-1)),
            (i32::MIN, FrameError::TooSmall(i32::MIN)),
            (0, FrameError::TooSmall(0)),
            (7, FrameError::TooSmall(7)),
            (
                101,
                FrameError::TooLarge {
                    length: 101,
                    limit: 100,
                },
            ),
            (
                i32::MAX,
                FrameError::TooLarge {
                    length: 0x7fff_ffff,
                    limit: 100,
                },
            ),
        ] {
            assert_eq!(run(&length.to_be_bytes(), 4, 100), Err(error));
        }
        assert_eq!(run(&frame(&[0; 100]), 4, 100).unwrap().len(), 1);
    }

    #[test]
    fn only_produce_may_use_its_larger_limit() {
        let limits = FrameLimits {
            produce: 1000,
            other: 100,
            front: FRONT,
        };
        for (key, length, fits) in [
            (0, 1000, true),
            (0, 1001, false),
            (1, 100, true),
            (1, 101, false),
            (256, 101, false),
        ] {
            let mut framer = Framer::new(limits);
            let mut buffer = framer.read_buffer();
            buffer.put_i32(length);
            buffer.put_i16(key);
            let answer = framer.next_frame();
            assert_eq!(
                answer.is_ok(),
                fits,
                "key {key}, {length} bytes: {answer:?}"
            );
            assert_eq!(framer.pending().is_some(), fits);
        }
        let mut framer = Framer::new(limits);
        framer.read_buffer().put_i32(101);
        assert_eq!(
            (framer.next_frame(), framer.pending()),
            (Ok(None), None),
            "the key decides"
        );
        framer.read_buffer().put_i32(0);
        assert_eq!(
            (framer.next_frame(), framer.pending()),
            (Ok(None), Some(101))
        );
    }

    #[test]
    fn an_idle_framer_holds_no_memory_and_a_used_one_takes_its_buffer_again() {
        let mut framer = Framer::new(limits(1 << 20));
        assert!(framer.is_at_rest());
        let stream = frame(&[1; 3000]);
        let mut addresses = std::collections::HashSet::new();
        for _ in 0..100 {
            framer.read_buffer().put_slice(&stream);
            let frame = framer.next_frame().unwrap().unwrap();
            addresses.insert(frame.as_ptr() as usize & !(FRONT * 2 - 1));
        }
        assert!(
            addresses.len() <= 2,
            "the buffer was allocated anew: {addresses:?}"
        );
        assert!(!framer.is_at_rest());
        framer.read_buffer().put_slice(&stream[..7]);
        framer.rest();
        assert!(!framer.is_at_rest(), "a frame has begun");
        framer.read_buffer().put_slice(&stream[7..]);
        assert_eq!(framer.next_frame().unwrap().unwrap(), stream[4..]);
        framer.rest();
        assert!(framer.is_at_rest());
    }
}
