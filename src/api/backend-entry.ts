/**
 * The entry `twinccl/backend`: the contract of a backend, and the helpers with which one is written.
 *
 * What programs use too, such as buffers, dtypes, operators and the typed errors, is in "twinccl". `docs/backends.md` has the whole
 * source of a small backend; `conformance` of "twinccl/testing" judges one.
 */
export type {
  Attempt,
  Backend,
  CallDigest,
  CallObserver,
  CallSet,
  Capabilities,
  CommInfo,
  CompareDigests,
  Completion,
  Exchange,
  FailedCall,
  JobSession,
  JoinRequest,
  MissingRanks,
  OpenRequest,
  PeerBarrier,
  PeerProcesses,
  PlanCache,
  PostedMessages,
  Probe,
  QueueingSession,
  RankCall,
  RankDevice,
  Rebuilt,
  RecordedCalls,
  RecordedMessages,
  RecordedWork,
  RemoteEnd,
  RemoteTransfer,
  RepeatedCall,
  Schedule,
  Scheduler,
  Session,
  SessionInfo,
  SplitChoice,
  Transfer,
  VirtualClock,
  Work,
  WriteFault,
} from "./backend.ts";
export { asJobSession, inRankOrder, isQueueing } from "./backend.ts";
export {
  bufferOver,
  type MemoryOwner,
  memoryOf,
  overlapBytes,
  type PlacedCall,
  type SymmetricPlace,
  symmetricPlace,
} from "./buffer.ts";
export { questionPlace } from "./explanation.ts";
export type { Memory } from "./memory.ts";
export { reduceOpName } from "./reduce-op.ts";
