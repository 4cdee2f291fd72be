"""The messages of the memory layer; the order gives each its number on the wire: append, never reorder."""

from __future__ import annotations

from gspc_trio.core.iml import exchange as x

IML_MESSAGE_TYPES: tuple[type, ...] = (
    x.JoinLayer, x.LayerJoined, x.Alloc, x.Located, x.Locate, x.LookUp, x.BeginPut, x.PutBegun, x.CommitData,
    x.AbortData, x.Free, x.Replicate, x.Publish, x.GetRank, x.SetRank, x.RankOf, x.GetServers, x.ServerList,
    x.ImlDone, x.LostData, x.ServerHello, x.ServerJoined, x.Evicted, x.CreatePart, x.SealPart, x.DropPart,
    x.ApplyPut, x.CopyPart, x.KeepPart, x.PartDone, x.GetChunk, x.Chunk, x.PutChunk,
    x.PutFrom,
)  # fmt: skip

BULK_TYPES = frozenset({x.Chunk, x.PutChunk})
"""Messages that are little more than their last field, which is long: the codec spares them copies."""
