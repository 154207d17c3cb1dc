"""Which messages answer which: as the reply, or later, when the requested work is done."""

from __future__ import annotations

from typing import TypeAlias

from remuda.wire import messages
from remuda.wire.messages import Message

Kind: TypeAlias = type[Message]

REPLIES: dict[Kind, tuple[Kind, ...]] = {
    messages.Register: (messages.Registered, messages.Rejected),
    messages.Beat: (messages.BeatHeard,),
    messages.ChunkReady: (messages.ChunkAccepted,),
    messages.Submit: (messages.Submitted, messages.Rejected),
    messages.StatusRequest: (messages.Status, messages.Rejected),
    messages.StopExperiment: (messages.Done, messages.Rejected),
    messages.Prioritize: (messages.Done, messages.Rejected),
    messages.LogRequest: (messages.LogText, messages.Rejected),
    messages.Shutdown: (messages.Done,),
}
"""Replies to each message; every other message that is resent is answered with an Ack."""

RESULTS: dict[Kind, tuple[Kind, ...]] = {
    messages.Assign: (messages.Ready, messages.WorkerFailed),
    messages.BatchRequest: (messages.Batches,),
    messages.SaveCheckpoint: (messages.CheckpointSaved,),
    messages.Evaluate: (messages.EvaluationDone,),
    messages.Reanalyze: (messages.Reanalyzed, messages.NotReanalyzed),
    messages.CallCallbacks: (messages.CallbacksDecided,),
    messages.Drain: (messages.Drained,),
    messages.Leave: (messages.Bye,),
}
"""Messages that follow later, when the work is done."""
