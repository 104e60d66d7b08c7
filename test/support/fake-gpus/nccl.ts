/** The NCCL calls on fake GPUs. */
import type { DType } from "twinccl";
import type { DataCall, NcclCalls } from "../../../src/backends/nccl/result/nccl.ts";
import { allToAllCall } from "./all-to-all.ts";
import { Clique, type CollectiveOp, End, type Op } from "./clique.ts";
import { connectionCalls, untilDone } from "./connections.ts";
import { allocateHere, freeIdle } from "./cuda.ts";
import { builtIn, type Contribution, preMultiplied } from "./fold.ts";
import { type Machine, ncclError, watched } from "./machine.ts";
import { type Group, State } from "./nccl-state.ts";
import { Split, splitRequest } from "./splits.ts";

/** `ncclDataType_t`, by value. */
const dtypes: readonly DType[] = [
  "int8",
  "uint8",
  "int32",
  "uint32",
  "int64",
  "uint64",
  "float16",
  "float32",
  "float64",
  "bfloat16",
  "float8e4m3",
  "float8e5m2",
];

/** The fake library: its calls, and how tests reach into its communicators. */
export interface FakeNccl {
  readonly calls: NcclCalls;
  /** The functions that move and reduce data, which sequences call. */
  readonly data: DataFunctions;
  /** Live ends of communicators, in the order in which they were made. */
  readonly ends: ReadonlyMap<bigint, End>;
  /** From here on aborts never return. */
  hangAborts(): void;
}

/** Functions by the names of the calls that they make. */
export type DataFunctions = {
  readonly [C in DataCall as C["name"]]: (...args: C["args"]) => void;
};

/** NCCL on a machine. */
export function fakeNccl(machine: Machine): FakeNccl {
  const state = new State(machine);
  machine.counters.push(() => state.leaks());
  const data: DataFunctions = watched(machine, dataFunctions(machine, state));
  const make = ({ name, args }: DataCall): void => {
    (data[name] as (...args: readonly unknown[]) => void)(...args);
  };
  const calls: NcclCalls = watched(machine, {
    ...communicatorCalls(machine, state),
    ...operatorCalls(machine, state),
    ...windowCalls(machine, state),
    ...connectionCalls(machine, state),
    sequence: (groups) => ({
      run: () => {
        for (const group of groups) {
          if (group.length > 1) calls.group(() => group.forEach(make));
          else group.forEach(make);
        }
      },
    }),
  });
  return { calls, data, ends: state.ends, hangAborts: () => state.hangAborts() };
}

type Part<K extends keyof NcclCalls> = Pick<NcclCalls, K>;

function communicatorCalls(
  machine: Machine,
  state: State,
): Part<
  | "version"
  | "uniqueId"
  | "group"
  | "estimateUs"
  | "initRank"
  | "initRankInBackground"
  | "split"
  | "splitInBackground"
  | "abortInBackground"
  | "checkAsync"
> {
  const join = (
    size: number,
    id: Uint8Array,
    rank: number,
    device: number,
    process: object,
  ): End => {
    const key = Buffer.from(id).toString("hex");
    const clique = state.joining.get(key) ?? new Clique(machine, size);
    state.joining.set(key, clique);
    if (clique.size !== size || clique.ends[rank] !== undefined) {
      throw ncclError("ncclCommInitRankConfig", 4, "ncclInvalidArgument");
    }
    if (clique.ends.some((end) => end?.device === device)) {
      throw ncclError("ncclCommInitRankConfig", 5, "ncclInvalidUsage");
    }
    machine.processes.set(device, process);
    const end = new End(clique, rank, device, machine.newHandle(), process);
    clique.ends[rank] = end;
    state.ends.set(end.handle, end);
    return end;
  };
  return {
    version: () => machine.ncclVersion,
    uniqueId() {
      state.ids += 1;
      return new Uint8Array(128).fill(state.ids);
    },
    group(calls) {
      state.inGroup(() => {
        state.depth += 1;
        try {
          calls();
        } finally {
          state.depth -= 1;
          machine.enter("groupEnd");
        }
      });
    },
    estimateUs(calls) {
      const group: Group = { work: [], later: [], covered: new Map(), process: {} };
      state.group = group;
      try {
        calls();
      } finally {
        state.group = undefined;
      }
      return group.work.length;
    },
    initRank(slot, size, id, rank) {
      const device = machine.current;
      state.inGroup((group) => {
        const end = join(size, id, rank, device, group.process);
        // Handles appear when the group is over; NCCL leaves some device current.
        group.later.push(() => {
          slot[0] = end.handle;
          machine.current = machine.devices - 1;
        });
      });
    },
    async initRankInBackground({ index }, size, id, rank) {
      // The others may share this thread and arrive after it, so this call waits for none of them.
      await new Promise((resolve) => setImmediate(resolve));
      return join(size, id, rank, index, {}).handle;
    },
    split(handle, color, key, child) {
      const end = state.end(handle);
      const request = splitRequest(machine, end, color, key);
      state.inGroup((group) => {
        const split = state.splits.get(end.clique) ?? new Split(machine, state);
        state.splits.set(end.clique, split);
        state.cover(group, end);
        group.later.push(() => {
          machine.current = machine.devices - 1;
          // The other ranks may share this thread and arrive after it, so this call waits for none of them.
          if (split.add(request, child) === end.clique.size) state.splits.delete(end.clique);
        });
      });
    },
    async splitInBackground({ index }, handle, color, key) {
      const end = state.end(handle);
      if (end.device !== index) machine.complain("a split begins on another device");
      const request = splitRequest(machine, end, color, key);
      const split = state.splits.get(end.clique) ?? new Split(machine, state);
      state.splits.set(end.clique, split);
      const child = new BigUint64Array(1);
      if (split.add(request, child) === end.clique.size) state.splits.delete(end.clique);
      try {
        // NCCL returns when all have come.
        await untilDone(end, "ncclCommSplit", () => split.isWhole);
      } catch (error) {
        state.ends.delete(child[0] as bigint);
        throw error;
      }
      return child[0] as bigint;
    },
    async abortInBackground(handle) {
      const end = state.anyEnd(handle);
      if (end.operators.size > 0) machine.complain("a communicator is freed with its operators");
      if (state.abortsHang) await new Promise(() => undefined);
      await new Promise((resolve) => setImmediate(resolve));
      end.clique.breakOff(end);
      end.aborted = true;
      end.windows.clear();
      end.operators.clear();
      state.ends.delete(handle);
    },
    checkAsync(handle) {
      const { failure } = state.anyEnd(handle);
      if (failure !== undefined) throw failure;
    },
  };
}

function dataFunctions(machine: Machine, state: State): DataFunctions {
  const submit = (comm: bigint, stream: bigint, op: Op): void => {
    const end = state.end(comm);
    state.inGroup((group) => {
      group.work.push({ end, stream, op });
      if (op.kind !== "send" && op.kind !== "recv") state.cover(group, end);
      else if (end.clique.isFirst(end, op)) {
        machine.complain("a message connects ranks on JavaScript's thread");
      }
    });
  };
  const operator = (comm: bigint, op: number, dtype: DType): Contribution => {
    const end = state.end(comm);
    const found = builtIn[op] ?? end.operators.get(op);
    const scales = found !== undefined && (found.op === "avg" || typeof found.op === "object");
    if (found === undefined || (scales && dtype.startsWith("float8") && end.clique.size === 1)) {
      throw ncclError("ncclAllReduce", 4, "ncclInvalidArgument");
    }
    return found;
  };
  const collective = (
    fields: Pick<CollectiveOp, "kind" | "send" | "recv" | "count"> & { readonly root?: number },
    type: number,
    comm: bigint,
    stream: bigint,
    op?: number,
  ): void => {
    if (fields.count === 0) return;
    const dtype = dtypes[type] as DType;
    const folded = op === undefined ? undefined : operator(comm, op, dtype);
    submit(comm, stream, { root: -1, ...fields, dtype, op: folded });
  };
  const message = {
    send: (buffer, count, type, peer, comm, stream) =>
      submit(comm, stream, { kind: "send", buffer, count, dtype: dtypes[type] as DType, peer }),
    recv: (buffer, count, type, peer, comm, stream) =>
      submit(comm, stream, { kind: "recv", buffer, count, dtype: dtypes[type] as DType, peer }),
  } satisfies Pick<DataFunctions, "send" | "recv">;
  return {
    ...message,
    alltoAll: allToAllCall({
      ...{ ...message, dtypes },
      group: (calls) => state.inGroup(calls),
      sizeOf: (comm) => state.end(comm).clique.size,
    }),
    allReduce: (send, recv, count, type, op, comm, stream) =>
      collective({ kind: "allReduce", send, recv, count }, type, comm, stream, op),
    reduce: (send, recv, count, type, op, root, comm, stream) =>
      collective({ kind: "reduce", send, recv, count, root }, type, comm, stream, op),
    reduceScatter: (send, recv, count, type, op, comm, stream) =>
      collective({ kind: "reduceScatter", send, recv, count }, type, comm, stream, op),
    allGather: (send, recv, count, type, comm, stream) =>
      collective({ kind: "allGather", send, recv, count }, type, comm, stream),
    broadcast: (send, recv, count, type, root, comm, stream) =>
      collective({ kind: "broadcast", send, recv, count, root }, type, comm, stream),
  };
}

function operatorCalls(
  machine: Machine,
  state: State,
): Part<"hasAllToAll" | "preMulSum" | "destroyOp"> {
  return {
    hasAllToAll: machine.ncclVersion >= 22800,
    preMulSum(scalar, type, comm) {
      const end = state.end(comm);
      const op = end.nextOperator++;
      end.operators.set(op, preMultiplied(dtypes[type] as DType, scalar));
      return op;
    },
    destroyOp(op, comm) {
      if (!state.end(comm).operators.delete(op))
        machine.complain(`operator ${op} is destroyed twice`);
    },
  };
}

function windowCalls(
  machine: Machine,
  state: State,
): Part<
  | "hasWindows"
  | "memAlloc"
  | "memFree"
  | "registerWindow"
  | "registerWindowInBackground"
  | "deregisterWindow"
> {
  const assertSymmetric = (ptr: bigint, bytes: number): void => {
    const block = machine.memory.at(ptr);
    const isThere = block?.base === ptr && block.symmetric && block.bytes.length >= bytes;
    // NCCL takes no bytes as well up to 2.28.
    if (!isThere || bytes === 0) {
      throw ncclError("ncclCommWindowRegister", 4, "ncclInvalidArgument");
    }
  };
  const assertCurrent = ({ device }: End, what: string): void => {
    if (machine.current !== device) machine.complain(`a window is ${what} on another device`);
  };
  return {
    hasWindows: machine.ncclVersion >= 22700,
    memAlloc(bytes) {
      const ptr = allocateHere(machine, bytes, true);
      if (ptr === undefined) throw ncclError("ncclMemAlloc", 1, "ncclUnhandledCudaError");
      return ptr;
    },
    memFree(ptr) {
      const open = [...state.ends.values()].some(({ windows }) =>
        [...windows.values()].includes(ptr),
      );
      if (open) machine.complain("symmetric memory is freed with its window");
      freeIdle(machine, ptr);
    },
    registerWindow(comm, ptr, bytes, slot) {
      const end = state.end(comm);
      state.inGroup((group) => {
        state.cover(group, end);
        if (end.clique.isApart) machine.complain("a window is registered on JavaScript's thread");
        assertCurrent(end, "registered");
        assertSymmetric(ptr, bytes);
        group.later.push(() => {
          slot[0] = machine.newHandle();
          end.windows.set(slot[0], ptr);
        });
      });
    },
    async registerWindowInBackground({ index }, comm, ptr, bytes) {
      const end = state.end(comm);
      if (end.device !== index) machine.complain("a window is registered on another device");
      assertSymmetric(ptr, bytes);
      // NCCL returns when all ranks have registered theirs.
      const { clique, rank } = end;
      const ranks = Array.from({ length: clique.size }, (_, each) => `window ${each}`);
      const isDone = clique.comings.come(`window ${rank}`, ranks);
      await untilDone(end, "ncclCommWindowRegister", isDone);
      const window = machine.newHandle();
      end.windows.set(window, ptr);
      return window;
    },
    deregisterWindow(comm, window) {
      const end = state.end(comm);
      assertCurrent(end, "given back");
      if (!end.windows.delete(window)) machine.complain("a window is given back twice");
    },
  };
}
