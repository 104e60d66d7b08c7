/// <reference lib="esnext.disposable" preserve="true" />
/** The public contract: what every program is written against, whatever backend runs it. */
export type { Attempt, Backend, Capabilities } from "./backend.ts";
export { DeviceBuffer } from "./buffer.ts";
export type {
  AllGatherArgs,
  AllGathervArgs,
  AllReduceArgs,
  AllToAllArgs,
  AllToAllvArgs,
  AllToAllvResult,
  BroadcastArgs,
  CallOptions,
  Data,
  DTypeOf,
  GatherArgs,
  Received,
  RecvArgs,
  ReduceArgs,
  ReduceScatterArgs,
  ReduceScattervArgs,
  ScatterArgs,
  SendArgs,
  SendRecvArgs,
  SplitArgs,
} from "./calls.ts";
export { type SpecifiedCollective, specifications } from "./collectives/index.ts";
export type {
  AllocOptions,
  CommStats,
  Communicator,
  Graph,
  PersistentCall,
} from "./communicator.ts";
export {
  bytesOf,
  type DType,
  type DTypeInfo,
  dtypeInfo,
  dtypes,
  type HostArray,
  type HostArrays,
  isDType,
} from "./dtype.ts";
export type { ErrorText, Row } from "./error-text.ts";
export {
  BackendUnavailableError,
  type CallOrder,
  CallOrderError,
  CollectiveMismatchError,
  CommAbortedError,
  CommClosedError,
  CommError,
  type CommErrorCode,
  type CommErrorFacts,
  CommTimeoutError,
  DeadlockError,
  InjectedFaultError,
  InvalidArgumentError,
  type OrderedCall,
  type RankFailure,
  RankLostError,
  type RankWait,
  RemoteRankError,
  RendezvousError,
  UnsupportedError,
  WorldError,
} from "./errors.ts";
export type {
  ChunkPlan,
  Explanation,
  Question,
  SymmetricOffsets,
} from "./explanation.ts";
export type { Hooks, OpInfo, Unhook } from "./hooks.ts";
export { asDType, type Float16Host, type NamedArrays, type TypedHost } from "./host-array.ts";
export type { LiveResources } from "./ledger/deadlock/runtime.ts";
export type { CommOp, OpStatus } from "./op.ts";
export {
  type NamedReduceOp,
  namedReduceOps,
  type PreMul,
  type ReduceOp,
} from "./reduce-op.ts";
export type { CollectiveName, InputBlock, Specification } from "./specification.ts";
export { type ConnectedCommunicator, type ConnectOptions, connect } from "./world/connect.ts";
export { createWorld, firstAvailable } from "./world/create-world.ts";
export type { RebuildOptions, StallReport, World, WorldOptions } from "./world/world.ts";

declare global {
  /** Every runtime has the class; of the types of the DOM or of Node.js, which have it too, a program may have neither. */
  interface AbortSignal {
    readonly aborted: boolean;
  }
}
