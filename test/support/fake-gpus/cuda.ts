/** The CUDA calls on fake GPUs. */
import type { CudaCalls } from "../../../src/backends/nccl/result/cuda.ts";
import { cudaError, type Machine, watched } from "./machine.ts";
import { type Event, Stream, type TaskMaker } from "./streams.ts";

/** CUDA on a machine. */
export function fakeCuda(machine: Machine): CudaCalls {
  return watched(machine, {
    ...deviceCalls(machine),
    ...memoryCalls(machine),
    ...streamCalls(machine),
    ...graphCalls(machine),
  });
}

type Part<K extends keyof CudaCalls> = Pick<CudaCalls, K>;

function deviceCalls(
  machine: Machine,
): Part<
  | "versions"
  | "deviceCount"
  | "computeCapability"
  | "pciBusId"
  | "canAccessPeer"
  | "setDevice"
  | "threadDevice"
  | "memoryInfo"
> {
  const setDevice = (device: number): void => {
    if (device < 0 || device >= machine.devices) {
      throw cudaError("cudaSetDevice", 101, "cudaErrorInvalidDevice");
    }
    machine.current = device;
  };
  return {
    versions: () => ({ runtime: 13000, driver: 13000 }),
    deviceCount: () => machine.devices,
    computeCapability: () => machine.capability,
    pciBusId: (device) => `0000:${(device + 16).toString(16).toUpperCase()}:00.0`,
    canAccessPeer: (device, peer) => device !== peer,
    setDevice,
    threadDevice: (index) => ({
      index,
      setter: () => undefined,
      check: () => machine.complain("no thread was started"),
    }),
    memoryInfo: () => ({
      freeBytes: machine.memoryBytes - used(machine, machine.current),
      totalBytes: machine.memoryBytes,
    }),
  };
}

function used({ memory }: Machine, device: number): number {
  return memory.live.reduce(
    (sum, { home, bytes }) => (home === device ? sum + bytes.length : sum),
    0,
  );
}

/** Allocates on the current device, as far as it has memory. */
export function allocateHere(
  machine: Machine,
  bytes: number,
  symmetric: boolean,
): bigint | undefined {
  if (machine.capturing) machine.complain("memory is allocated while a stream captures");
  if (used(machine, machine.current) + bytes > machine.memoryBytes) return undefined;
  return machine.memory.allocate(bytes, machine.current, symmetric);
}

/** Memory must not go while work that may use it is under way: CUDA would block the thread until then. */
export function freeIdle(machine: Machine, ptr: bigint): void {
  machine.pump();
  const { home } = machine.memory.at(ptr) ?? { home: "host" };
  const process = machine.processes.get(machine.current);
  for (const stream of machine.streams.values()) {
    const concerned =
      home === "host" ? machine.processes.get(stream.device) === process : stream.device === home;
    if (concerned && !stream.idle)
      machine.complain(`memory of ${home} is freed under running work`);
  }
  machine.memory.free(ptr);
}

function memoryCalls(
  machine: Machine,
): Part<
  "malloc" | "free" | "hostAlloc" | "hostFree" | "hostView" | "pointerInfo" | "copy" | "set"
> {
  const { memory } = machine;
  return {
    malloc(bytes) {
      const ptr = allocateHere(machine, bytes, false);
      if (ptr === undefined) throw cudaError("cudaMalloc", 2, "cudaErrorMemoryAllocation");
      return ptr;
    },
    free: (ptr) => freeIdle(machine, ptr),
    hostAlloc: (bytes) => memory.allocate(bytes, "host"),
    hostFree: (ptr) => freeIdle(machine, ptr),
    hostView: (ptr, bytes) => memory.range(ptr, bytes, "host"),
    pointerInfo(ptr) {
      const home = memory.at(ptr)?.home;
      if (home === undefined) return { kind: "unregistered", device: -1 };
      return home === "host" ? { kind: "host", device: 0 } : { kind: "device", device: home };
    },
    copy(target, source, bytes, handle) {
      const stream = machine.stream(handle);
      if (target instanceof Uint8Array) {
        // Into ordinary host memory: the thread waits for all that is before.
        machine.pump();
        if (!stream.idle) throw new Error("a copy to ordinary memory would block this thread");
        const from =
          source instanceof Uint8Array ? source : memory.range(source, bytes, stream.device);
        target.set(from.subarray(0, bytes));
        return;
      }
      // From ordinary memory the bytes are taken at once; from page-locked memory when the stream gets there.
      const taken = source instanceof Uint8Array ? source.slice(0, bytes) : undefined;
      put(stream, "a copy", () => {
        const from = taken ?? memory.range(source as bigint, bytes);
        const home = memory.at(target)?.home === "host" ? "host" : stream.device;
        memory.range(target, bytes, home).set(from);
      });
    },
    set(ptr, value, bytes, handle) {
      const stream = machine.stream(handle);
      put(stream, "a fill", () => memory.range(ptr, bytes, stream.device).fill(value));
    },
  };
}

function put(stream: Stream, what: string, work: () => void): void {
  stream.put(() => ({
    what,
    step() {
      work();
      return true;
    },
  }));
}

function streamCalls(
  machine: Machine,
): Part<
  | "streamCreate"
  | "streamDestroy"
  | "streamSynchronize"
  | "streamDone"
  | "streamWaitEvent"
  | "eventCreate"
  | "eventDestroy"
  | "eventRecord"
  | "eventDone"
> {
  const event = (handle: bigint): Event => {
    const found = machine.events.get(handle);
    if (found !== undefined) return found;
    machine.complain(`event ${handle} is used after it was destroyed`);
    throw cudaError("cudaEvent", 400, "cudaErrorInvalidResourceHandle");
  };
  return {
    streamCreate() {
      const stream = new Stream(machine.newHandle(), machine.current);
      machine.streams.set(stream.handle, stream);
      return stream.handle;
    },
    streamDestroy(handle) {
      if (!machine.stream(handle).idle) machine.complain("a stream is destroyed under its work");
      machine.streams.delete(handle);
    },
    streamSynchronize(handle) {
      machine.pump();
      const head = machine.stream(handle).queue[0];
      if (head !== undefined) throw new Error(`this thread would wait for ever for ${head.what}`);
    },
    streamDone(handle) {
      machine.pump();
      const stream = machine.stream(handle);
      if (stream.recording !== undefined) machine.complain("a stream is queried while it captures");
      // Handles of default streams mean those of the current device.
      if (stream.device !== machine.current)
        machine.complain("a stream is queried while another device is current");
      return stream.idle;
    },
    streamWaitEvent(handle, awaited) {
      const { recorded } = event(awaited);
      const stream = machine.stream(handle);
      if (stream.recording !== undefined) machine.complain("a capture waits for work outside it");
      if (recorded === undefined) return;
      const what = `work before it on another stream of ${recorded.stream.device}`;
      stream.put(() => ({ what, step: () => recorded.stream.done >= recorded.at }));
    },
    eventCreate() {
      const handle = machine.newHandle();
      machine.events.set(handle, { handle, device: machine.current, recorded: undefined });
      return handle;
    },
    eventDestroy(handle) {
      event(handle);
      machine.events.delete(handle);
    },
    eventRecord(handle, on) {
      const [found, stream] = [event(handle), machine.stream(on)];
      if (found.device !== stream.device) {
        throw cudaError("cudaEventRecord", 400, "cudaErrorInvalidResourceHandle");
      }
      if (stream.recording !== undefined) machine.complain("an event is recorded into a capture");
      found.recorded = { stream, at: stream.submitted };
    },
    eventDone(handle) {
      machine.pump();
      const { recorded } = event(handle);
      return recorded === undefined || recorded.stream.done >= recorded.at;
    },
  };
}

/** The captured work, and the number of launches that it permits. */
interface Graph {
  readonly makers: readonly TaskMaker[];
  readonly launchable: boolean;
}

function graphCalls(
  machine: Machine,
): Part<
  "isCapturing" | "beginCapture" | "endCapture" | "instantiate" | "launches" | "graphDestroy"
> {
  const graph = (handle: bigint, launchable: boolean): Graph => {
    const found = machine.graphs.get(handle) as Graph | undefined;
    if (found?.launchable === launchable) return found;
    machine.complain(`graph ${handle} is used although it is none`);
    throw cudaError("cudaGraph", 400, "cudaErrorInvalidResourceHandle");
  };
  const keep = (made: Graph): bigint => {
    const handle = machine.newHandle();
    machine.graphs.set(handle, made);
    return handle;
  };
  const launch = (handle: bigint, on: bigint): void => {
    const stream = machine.stream(on);
    for (const make of graph(handle, true).makers) stream.put(make);
  };
  return {
    isCapturing: (handle) => machine.stream(handle).recording !== undefined,
    beginCapture(handle) {
      const stream = machine.stream(handle);
      if (stream.recording !== undefined) throw cudaError("cudaStreamBeginCapture", 901, "busy");
      stream.recording = [];
    },
    endCapture(handle) {
      const stream = machine.stream(handle);
      const makers = stream.recording;
      if (makers === undefined) throw cudaError("cudaStreamEndCapture", 901, "not capturing");
      stream.recording = undefined;
      return keep({ makers, launchable: false });
    },
    instantiate(recording) {
      const { makers } = graph(recording, false);
      machine.graphs.delete(recording);
      // A failure that is planned for this name comes after the recording was given back, as it does with CUDA.
      machine.enter("instantiation");
      if (machine.capturing) {
        throw cudaError("cudaGraphInstantiateWithFlags", 900, "cudaErrorStreamCaptureUnsupported");
      }
      return keep({ makers, launchable: true });
    },
    launches: (each, inPart) => ({
      run: () => {
        for (const [at, { graph: handle, stream }] of each.entries()) {
          try {
            machine.enter("graphLaunch");
          } catch (error) {
            if (at > 0) inPart();
            throw error;
          }
          launch(handle, stream);
        }
      },
    }),
    graphDestroy(handle) {
      graph(handle, true);
      machine.graphs.delete(handle);
    },
  };
}
