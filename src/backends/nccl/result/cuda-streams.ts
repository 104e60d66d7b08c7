/** The CUDA calls about streams, events and graphs. */
import type { CudaLibrary } from "./cuda-status.ts";

const notReady = 600;
const nonBlockingStream = 1;
const eventWithoutTiming = 2;
const captureThreadLocal = 1;

/** Streams, events and graphs. */
export interface CudaStreamCalls {
  streamCreate(): bigint;
  streamDestroy(stream: bigint): void;
  streamSynchronize(stream: bigint): void;
  /** True when everything that was put on the stream is done. */
  streamDone(stream: bigint): boolean;
  eventCreate(timing: boolean): bigint;
  eventDestroy(event: bigint): void;
  eventRecord(event: bigint, stream: bigint): void;
  /** True when everything before the event is done. */
  eventDone(event: bigint): boolean;
  elapsedMs(start: bigint, end: bigint): number;
  /** True when the stream is being captured. */
  isCapturing(stream: bigint): boolean;
  beginCapture(stream: bigint): void;
  /** Ends a capture; the recording is to be instantiated. */
  endCapture(stream: bigint): bigint;
  /** Makes a recording launchable, and gives the recording back. No stream may be capturing. */
  instantiate(recording: bigint): bigint;
  graphLaunch(graph: bigint, stream: bigint): void;
  graphDestroy(graph: bigint): void;
}

/** Wraps these calls. */
export function streamCalls({ get, check, handle }: CudaLibrary): CudaStreamCalls {
  const [eventRecord, eventQuery] = [get("eventRecord"), get("eventQuery")];
  const streamQuery = get("streamQuery");
  const graphLaunch = get("graphLaunch");
  const isReady = (status: number, cCall: string): boolean => {
    if (status === notReady) return false;
    check(status, cCall);
    return true;
  };
  return {
    streamCreate: () =>
      handle("cudaStreamCreateWithFlags", (out) =>
        get("streamCreateWithFlags")(out, nonBlockingStream),
      ),
    streamDestroy: (stream) => check(get("streamDestroy")(stream), "cudaStreamDestroy"),
    streamSynchronize: (stream) => check(get("streamSynchronize")(stream), "cudaStreamSynchronize"),
    streamDone: (stream) => isReady(streamQuery(stream), "cudaStreamQuery"),
    eventCreate: (timing) =>
      handle("cudaEventCreateWithFlags", (out) =>
        get("eventCreateWithFlags")(out, timing ? 0 : eventWithoutTiming),
      ),
    eventDestroy: (event) => check(get("eventDestroy")(event), "cudaEventDestroy"),
    eventRecord: (event, stream) => check(eventRecord(event, stream), "cudaEventRecord"),
    eventDone: (event) => isReady(eventQuery(event), "cudaEventQuery"),
    elapsedMs(start, end) {
      const ms = new Float32Array(1);
      check(get("eventElapsedTime")(ms, start, end), "cudaEventElapsedTime");
      return ms[0] as number;
    },
    isCapturing: (stream) => {
      const status = new Int32Array(1);
      check(get("streamIsCapturing")(stream, status), "cudaStreamIsCapturing");
      return status[0] !== 0;
    },
    beginCapture: (stream) =>
      check(get("streamBeginCapture")(stream, captureThreadLocal), "cudaStreamBeginCapture"),
    endCapture: (stream) =>
      handle("cudaStreamEndCapture", (out) => get("streamEndCapture")(stream, out)),
    instantiate(graph) {
      const destroy = get("graphDestroy");
      let launchable: bigint;
      try {
        launchable = handle("cudaGraphInstantiateWithFlags", (out) =>
          get("graphInstantiateWithFlags")(out, graph, 0),
        );
      } catch (error) {
        // Its own status would hide why the recording cannot be launched.
        destroy(graph);
        throw error;
      }
      check(destroy(graph), "cudaGraphDestroy");
      return launchable;
    },
    graphLaunch: (graph, stream) => check(graphLaunch(graph, stream), "cudaGraphLaunch"),
    graphDestroy: (graph) => check(get("graphExecDestroy")(graph), "cudaGraphExecDestroy"),
  };
}
