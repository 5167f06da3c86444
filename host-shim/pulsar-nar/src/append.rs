//! Appends: their order is that of the calls to Java's `Partition.append`, and each is answered once.
//!
//! It must not know what an entry holds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use handler_api::{ApiError, AppendRequest, Appended, ErrorCode, Position, Reply};
use tokio::sync::oneshot;

use crate::bridge::{Append, Bridge, Call, Settings};
use crate::jvm::Fill;

/// An append that was refused at once, or one whose answer comes.
enum Waiting {
    Refused(ApiError),
    Later(oneshot::Receiver<Result<Appended, ApiError>>),
}

/// Hands entries to the broker; order and ownership are fixed when this returns.
pub(crate) fn append(
    bridge: &Bridge,
    settings: &Settings,
    requests: Vec<AppendRequest>,
) -> Reply<Vec<Result<Appended, ApiError>>> {
    let submit = |request| match submit(bridge, settings, request) {
        Ok(answer) => Waiting::Later(answer),
        Err(error) => Waiting::Refused(error),
    };
    let waiting: Vec<Waiting> = requests.into_iter().map(submit).collect();
    Reply::pending(async move {
        let mut results = Vec::with_capacity(waiting.len());
        for one in waiting {
            results.push(match one {
                Waiting::Refused(error) => Err(error),
                Waiting::Later(answer) => crate::bridge::answered(answer).await,
            });
        }
        Ok(results)
    })
}

fn submit(
    bridge: &Bridge,
    settings: &Settings,
    request: AppendRequest,
) -> Result<oneshot::Receiver<Result<Appended, ApiError>>, ApiError> {
    let refused = |code, text: String| Err(ApiError::new(code, text));
    let partition = bridge.table.get(request.handle)?;
    partition.alive()?;
    let Some(messages) = i32::try_from(request.messages)
        .ok()
        .filter(|count| *count > 0)
    else {
        let text = format!("an entry cannot hold {} messages", request.messages);
        return refused(ErrorCode::InvalidArgument, text);
    };
    let bytes: u64 = request
        .segments
        .iter()
        .map(|piece| piece.len() as u64)
        .sum();
    let length = i32::try_from(bytes).unwrap_or(i32::MAX);
    if bytes > settings.max_entry_bytes || length == i32::MAX {
        let text = format!(
            "an entry of {bytes} bytes is larger than the {} that maxMessageSize leaves room for",
            settings.max_entry_bytes
        );
        return refused(ErrorCode::TooLarge, text);
    }
    if !Bridge::reserve(&bridge.append_bytes, bytes, settings.max_append_bytes) {
        let text = "as many bytes are on their way to the storage as \
                    maxMessagePublishBufferSizeInMB allows"
            .to_owned();
        return refused(ErrorCode::NotReady, text);
    }
    let (reply, answer) = oneshot::channel();
    partition.began();
    let call = Call::Append(Append {
        partition: Arc::clone(&partition),
        messages: request.messages,
        bytes,
        pieces: request.segments.into_vec(),
        reply,
    });
    let is_marker = request.flags & AppendRequest::MARKER != 0;
    bridge.ask(call, settings.append_timeout, |ctx| {
        partition.java.append(ctx, length, messages, is_marker)
    });
    Ok(answer)
}

impl Bridge {
    /// Java has a buffer for an entry. False: nobody waits for this append any more, and it must not be made.
    pub(crate) fn fill(&self, ctx: i64, room: Fill<'_>) -> bool {
        let pieces = self.calls.with(ctx, |call| match call {
            Call::Append(append) => Some(std::mem::take(&mut append.pieces)),
            _ => None,
        });
        pieces.flatten().is_some_and(|pieces| room.copy(&pieces))
    }

    /// An append is durable.
    pub(crate) fn appended(&self, ctx: i64, position: Position, index: i64) {
        let Some(Call::Append(append)) = self.calls.take(ctx) else {
            return;
        };
        if index < 0 {
            let text = "the broker gave the entry no index: brokerEntryMetadataInterceptors lacks \
                        AppendIndexMetadataInterceptor";
            let error = ApiError::new(ErrorCode::UnknownOutcome, text);
            return self.append_failed(append, error);
        }
        self.append_bytes.fetch_sub(append.bytes, Ordering::AcqRel);
        self.metrics.appended(append.bytes);
        let partition = &append.partition;
        partition.sized(append.bytes);
        let moved = partition.appended(position, index, i64::from(append.messages));
        // Who dropped the receiver wanted the append, but not its answer.
        let _ = append.reply.send(Ok(Appended { position, index }));
        self.wake(partition, moved);
    }

    /// An append was refused, or nobody knows what became of it.
    pub(crate) fn append_failed(&self, append: Append, error: ApiError) {
        self.append_bytes.fetch_sub(append.bytes, Ordering::AcqRel);
        self.metrics.append_failed();
        append.partition.ended();
        let is_fatal = matches!(
            error.kind(),
            ErrorCode::HandleClosed
                | ErrorCode::UnknownOutcome
                | ErrorCode::Internal
                | ErrorCode::Timeout
                | ErrorCode::Closing
        );
        if is_fatal {
            self.close_partition(&append.partition, &error.message);
        } else if let Some(bridge) = crate::bridge::current() {
            // While it was under way nobody looked at what others wrote.
            bridge.refresh_later(Arc::clone(&append.partition));
        }
        let _ = append.reply.send(Err(error));
    }
}
