/** Worker threads of the present runtime: Node's, or a browser's. Nothing of Node is imported. */
import { runtimeProcess } from "../../../../api/runtime-process.ts";
import type { WasmLinearMemory, WasmModule } from "./module.ts";

/** Data of a worker at its start. */
export interface WorkerData {
  readonly module: WasmModule;
  readonly memory: WasmLinearMemory;
  /** Address of the control block. */
  readonly controlAt: number;
  /** Its number; the calling thread is 0. */
  readonly thread: number;
}

/** A running worker. */
export interface WorkerHandle {
  stop(): void;
}

interface BrowserWorker {
  postMessage(data: WorkerData): void;
  terminate(): void;
}

/** The parts of the runtime that are looked up; any of them may be absent. */
interface Runtime {
  readonly navigator?: { readonly hardwareConcurrency?: number };
  readonly Worker?: new (url: string) => BrowserWorker;
  readonly Blob?: new (parts: readonly string[], options: { readonly type: string }) => object;
  readonly URL?: { createObjectURL(blob: object): string; revokeObjectURL(url: string): void };
}

const runtime = globalThis as unknown as Runtime;

/**
 * Starts a worker that does not keep the runtime alive; `undefined` where there are none, or where the process or the page may
 * start none, as under Node's permission model.
 */
export function spawn(source: string, data: WorkerData): WorkerHandle | undefined {
  const threads = runtimeProcess()?.getBuiltinModule?.("node:worker_threads");
  try {
    if (threads === undefined) return spawnInPage(source, data);
    // No flags of this process: the worker must not load the process's module hooks.
    const options = { eval: true, workerData: data, execArgv: [], name: "twinccl-wasm" };
    const worker = new threads.Worker(source, options);
    worker.unref();
    // A worker that cannot start takes no slices; the other threads run them.
    worker.on("error", () => {});
    return { stop: () => void worker.terminate() };
  } catch {
    return undefined;
  }
}

function spawnInPage(source: string, data: WorkerData): WorkerHandle | undefined {
  const { Worker, Blob, URL } = runtime;
  if (Worker === undefined || Blob === undefined || URL === undefined) return undefined;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(url);
  worker.postMessage(data);
  return {
    stop: () => {
      worker.terminate();
      URL.revokeObjectURL(url);
    },
  };
}

/** Number of threads that the machine runs at once. */
export function processors(): number {
  const os = runtimeProcess()?.getBuiltinModule?.("node:os");
  return os?.availableParallelism?.() ?? runtime.navigator?.hardwareConcurrency ?? 1;
}
