/** Reports of a job: the output of its ranks behind prefixes, or all its events as lines of JSON. */
import { isUtf8 } from "node:buffer";
import type { Writable } from "node:stream";
import { standardOutput } from "../output.ts";
import { type LineFormat, ThrottledSink } from "./lines.ts";

/** An output stream of a rank. */
export type StreamName = "stdout" | "stderr";

/** An event of a job besides output. Names and fields are those of `--json`, described in `docs/launch.md`. */
export type JobEvent =
  | {
      readonly event: "job_started";
      readonly job: string;
      readonly ranks: number;
      readonly hosts: number;
      /** Process of the launcher. */
      readonly pid: number;
      readonly command: readonly string[];
      /** The clock at the job's start. */
      readonly unix_ms: number;
    }
  | {
      readonly event: "rank_started";
      readonly rank: number;
      readonly pid: number;
      readonly host: number;
      readonly local_rank: number;
    }
  | {
      readonly event: "rank_exited";
      readonly rank: number;
      readonly status: number;
      /** The process's own exit status; `null` after a signal, and for a process that could not start. */
      readonly code: number | null;
      readonly signal: NodeJS.Signals | null;
      readonly how: string;
      readonly stopped: boolean;
    }
  | {
      readonly event: "signal_sent";
      readonly signal: NodeJS.Signals;
      readonly ranks: readonly number[];
    }
  | { readonly event: "timeout"; readonly timeout_ms: number; readonly ranks: readonly number[] }
  | {
      readonly event: "job_ended";
      readonly status: number;
      /** The rank that failed first by itself. */
      readonly first_failed: number | null;
      /** The summary; `null` for a job that ended well. */
      readonly message: string | null;
    };

/** A line of a rank's output. */
interface OutputEvent {
  readonly event: "output";
  readonly rank: number;
  readonly stream: StreamName;
  readonly text: string;
  /** False for the cut part of a longer line, and for an unfinished line at the end. */
  readonly newline: boolean;
  /** Exact bytes of a line that is not UTF-8: in its text, U+FFFD replaces the wrong ones. */
  readonly base64?: string;
}

/** The form in which a job is reported. */
export interface JobReport {
  /** Destination of a stream's lines. */
  readonly sinkOf: (stream: StreamName) => ThrottledSink;
  /** Format of the lines of a rank's stream. */
  readonly formatOf: (rank: number, stream: StreamName) => LineFormat;
  readonly event: (event: JobEvent) => void;
}

/** A stream of the launcher. Only terminals judge their colours, by TERM, NO_COLOR and FORCE_COLOR. */
type Output = Writable & { readonly hasColors?: () => boolean };

/** Colours of ranks in turn: codes of ANSI for the foreground. Red is for errors; black and white may be the background. */
const colors = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94] as const;

/** The code of a terminal's own colour. */
const plain = 39;

/** Output with a prefix on every line, coloured by rank on a terminal. */
export class PrefixedOutput implements JobReport {
  readonly #prefix: (rank: number) => string;
  readonly #outputs: Readonly<Record<StreamName, Output>>;
  readonly #sinks: Readonly<Record<StreamName, ThrottledSink>>;
  readonly #beforeLine: () => void;

  /** `beforeLine` is called before each line, which goes past the line of progress of a command. */
  constructor(
    prefix = (rank: number): string => `[${rank}] `,
    outputs: Readonly<Record<StreamName, Output>> = {
      stdout: standardOutput,
      stderr: process.stderr,
    },
    beforeLine = (): void => undefined,
  ) {
    this.#prefix = prefix;
    this.#beforeLine = beforeLine;
    this.#outputs = outputs;
    this.#sinks = {
      stdout: new ThrottledSink(outputs.stdout),
      stderr: new ThrottledSink(outputs.stderr),
    };
  }

  sinkOf(stream: StreamName): ThrottledSink {
    return this.#sinks[stream];
  }

  formatOf(rank: number, stream: StreamName): LineFormat {
    const text = this.#prefix(rank);
    // FORCE_COLOR does not reach pipes: their readers parse the prefix.
    const isColored = text !== "" && this.#outputs[stream].hasColors?.() === true;
    const color = colors[rank % colors.length];
    const prefix = isColored ? `\x1b[${color}m${text}\x1b[${plain}m` : text;
    return (line) => {
      this.#beforeLine();
      return `${prefix}${line}\n`;
    };
  }

  event(): void {
    // The summary of the end is on standard error in every form.
  }
}

/** One JSON object a line for every event. */
export class JsonEvents implements JobReport {
  readonly #sink: ThrottledSink;
  readonly #began = performance.now();

  constructor(output: Writable = standardOutput) {
    this.#sink = new ThrottledSink(output);
  }

  sinkOf(): ThrottledSink {
    return this.#sink;
  }

  formatOf(rank: number, stream: StreamName): LineFormat {
    return (line, newline) => {
      const bytes = Buffer.from(line, "latin1");
      return this.#line({
        event: "output",
        rank,
        stream,
        text: bytes.toString(),
        newline,
        ...(!isUtf8(bytes) && { base64: bytes.toString("base64") }),
      });
    };
  }

  event(event: JobEvent): void {
    this.#sink.write(this.#line(event));
  }

  #line({ event, ...fields }: JobEvent | OutputEvent): string {
    const time_ms = Number((performance.now() - this.#began).toFixed(3));
    return Buffer.from(`${JSON.stringify({ event, time_ms, ...fields })}\n`).toString("latin1");
  }
}
