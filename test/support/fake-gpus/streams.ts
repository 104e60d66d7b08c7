/** Streams of fake GPUs: queues of work that runs in order, later than it was submitted, and only on a query. */

/** Work at the head of a stream. */
export interface Task {
  /** Does what can be done now; true when the task is over. */
  step(): boolean;
  /** For messages: what it is waiting for. */
  readonly what: string;
  /** The end of a communicator that runs it, for kernels of NCCL. */
  readonly owner?: object;
}

/** Makes a new task for every launch of a graph. */
export type TaskMaker = () => Task;

/** A stream of one device. */
export class Stream {
  readonly handle: bigint;
  readonly device: number;
  /** Tasks submitted, and tasks over, since the stream was made. */
  submitted = 0;
  done = 0;
  readonly queue: Task[] = [];
  /** The longest queue so far. CUDA blocks the thread that launches behind about a thousand. */
  deepest = 0;
  /** The tasks recorded by a capture. */
  recording: TaskMaker[] | undefined;

  constructor(handle: bigint, device: number) {
    this.handle = handle;
    this.device = device;
  }

  put(make: TaskMaker): void {
    if (this.recording !== undefined) {
      this.recording.push(make);
      return;
    }
    this.queue.push(make());
    this.submitted += 1;
    this.deepest = Math.max(this.deepest, this.queue.length);
  }

  /** Runs what can run; true when anything moved. */
  run(): boolean {
    let moved = false;
    for (let head = this.queue[0]; head?.step() === true; head = this.queue[0]) {
      this.queue.shift();
      this.done += 1;
      moved = true;
    }
    return moved;
  }

  get idle(): boolean {
    return this.queue.length === 0;
  }
}

/** A point in a stream. */
export interface Event {
  readonly handle: bigint;
  readonly device: number;
  recorded: { readonly stream: Stream; readonly at: number } | undefined;
}
