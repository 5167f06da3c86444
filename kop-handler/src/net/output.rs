//! The bytes that a connection still has to send: segments of replies, shared with whoever read them, written together.
//!
//! It must not know requests.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::wire::response::Encoded;

/// Slices that are gathered without an allocation: a reply of a few batches, or a few small replies.
const FEW: usize = 16;

/// Segments in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    segments: VecDeque<Bytes>,
    bytes: usize,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that are left.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, reply: Encoded) {
        for segment in reply.segments {
            if !segment.is_empty() {
                self.bytes += segment.len();
                self.segments.push_back(segment);
            }
        }
    }

    /// Writes once, as much as the socket takes. Nothing is lost if the future is dropped.
    pub(super) async fn write_to(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
        max_slices: usize,
    ) -> io::Result<usize> {
        if let [Some(one), None] = [self.segments.front(), self.segments.get(1)] {
            return socket.write(one).await;
        }
        if self.segments.len() <= FEW {
            let mut slices = [IoSlice::new(&[]); FEW];
            for (slice, segment) in slices.iter_mut().zip(&self.segments) {
                *slice = IoSlice::new(segment);
            }
            return socket
                .write_vectored(slices.get(..self.segments.len()).unwrap_or_default())
                .await;
        }
        let slices: Vec<IoSlice<'_>> = self
            .segments
            .iter()
            .take(max_slices)
            .map(|s| IoSlice::new(s))
            .collect();
        socket.write_vectored(&slices).await
    }

    /// Forgets bytes that were written.
    pub(super) fn advance(&mut self, mut written: usize) {
        self.bytes = self.bytes.saturating_sub(written);
        while let Some(first) = self.segments.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn segments_leave_in_order_however_little_the_socket_takes() {
        for (count, max_slices) in [(2, 1024), (3, 1024), (40, 7)] {
            let segments: Vec<Bytes> = (0..count)
                .map(|n| Bytes::from(vec![n; usize::from(n % 5)]))
                .collect();
            let whole = segments.concat();
            let mut output = Output::default();
            output.push(Encoded { segments });
            assert_eq!(output.len(), whole.len());
            let (mut near, mut far) = tokio::io::duplex(3);
            let reader = tokio::spawn(async move {
                let mut got = Vec::new();
                tokio::io::AsyncReadExt::read_to_end(&mut far, &mut got)
                    .await
                    .map(|_| got)
            });
            while !output.is_empty() {
                let written = output
                    .write_to(&mut near, max_slices)
                    .await
                    .unwrap_or_else(|e| panic!("{e}"));
                assert!(written > 0);
                output.advance(written);
            }
            drop(near);
            let got = reader
                .await
                .unwrap_or_else(|e| panic!("{e}"))
                .unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(got, whole);
        }
    }
}
