/**
 * C calls on threads of their own, which keep no process alive.
 *
 * Node.js has four threads for calls that block, and ends no process, not even by `process.exit`, while one of them is in a
 * call. NCCL's start waits for ever where a rank was lost on the way. A thread of its own keeps neither the process nor others.
 */
import { mapCode, pageCalls } from "./code-memory.ts";
import { firstLine, koffi, stackBytes } from "./koffi.ts";
import { threadCode } from "./thread-code.ts";
import { type Outcome, type ThreadedCall, ThreadRecord } from "./thread-record.ts";

/**
 * Makes calls on a thread of their own, up to one that gives another status than 0; `undefined` where the system starts none.
 * The promise does not keep the process alive either: its users do, as long as they wait.
 */
export type OwnThreads = (calls: readonly ThreadedCall[]) => Promise<Outcome> | undefined;

let prepared: Promise<OwnThreads | string> | undefined;

/** The starter of such threads; or the reason why there is none. */
export function ownThreads(): Promise<OwnThreads | string> {
  prepared ??= prepare().catch((error: unknown) => `no threads: ${firstLine(error)}`);
  return prepared;
}

async function prepare(): Promise<OwnThreads | string> {
  const code = await mapCode(threadCode);
  if (typeof code === "string") return code;
  const [pages, start] = await Promise.all([pageCalls(), threadStarter(code.address)]);
  /** Those that no thread writes to any more. */
  const idle: ThreadRecord[] = [];
  return (calls) => {
    const bytes = ThreadRecord.bytesOf(calls);
    const fitting = idle.findIndex(({ byteLength }) => byteLength >= bytes);
    const [record = ThreadRecord.of(pages, bytes)] = fitting < 0 ? [] : idle.splice(fitting, 1);
    if (record === undefined) return undefined;
    record.write(calls);
    const outcome = start(record.address) ? record.done() : undefined;
    if (outcome === undefined) idle.push(record);
    return outcome?.finally(() => idle.push(record));
  };
}

/** Starts threads that begin at an address, with a word; false where the system starts none. */
async function threadStarter(begin: bigint): Promise<(word: bigint) => boolean> {
  const { load } = await koffi();
  const libc = threadsLibrary(load);
  const initialise = libc.func("int pthread_attr_init(void* attributes)");
  const setStack = libc.func("int pthread_attr_setstacksize(void* attributes, size_t bytes)");
  const setDetached = libc.func("int pthread_attr_setdetachstate(void* attributes, int state)");
  const create = libc.func(
    "int pthread_create(_Out_ uint64_t* thread, void* attributes, void* begin, void* word)",
  );
  const attributes = new Uint8Array(attributeBytes);
  initialise(attributes);
  setStack(attributes, stackBytes);
  setDetached(attributes, detached);
  const thread = new BigUint64Array(1);
  return (word) => create(thread, attributes, begin, word) === 0;
}

/** More than a `pthread_attr_t` has. */
const attributeBytes = 64;
/** `PTHREAD_CREATE_DETACHED`: it is never joined. */
const detached = 1;

type Load = Awaited<ReturnType<typeof koffi>>["load"];

/** Older C libraries have threads in a library of their own. */
function threadsLibrary(load: Load): ReturnType<Load> {
  try {
    const libc = load("libc.so.6");
    libc.symbol("pthread_attr_setstacksize");
    return libc;
  } catch {
    return load("libpthread.so.0");
  }
}
