/** The echoing library as tests use it: choose what calls give back, and read what arrived. */
import { bind, need, prototype } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compileLibrary } from "../../../../support/c-library.ts";

const table = {
  begin: prototype<
    (status: number, out0: bigint, out1: bigint, real: number, deepBytes: number) => undefined
  >(
    "void echo_begin(int status, uint64_t out0, uint64_t out1, double real, size_t deepBytes)",
    "1",
  ),
  lastError: prototype<(some: number) => undefined>("void echo_last_error(int some)", "1"),
  failing: prototype<(call: number) => undefined>("void echo_failing(int call)", "1"),
  text: prototype<() => string>("const char* echo_text(void)", "1"),
  lines: prototype<() => string>("const char* echo_lines(void)", "1"),
  machine: prototype<(devices: number, switched: number) => undefined>(
    "void echo_machine(unsigned int devices, int switched)",
    "1",
  ),
  calls: prototype<() => number>("int echo_calls(void)", "1"),
  hold: prototype<(hold: number) => undefined>("void echo_hold(int hold)", "1"),
  waiting: prototype<() => number>("int echo_waiting(void)", "1"),
  layouts: prototype<() => string>("const char* echo_layouts(void)", "1"),
  clearings: prototype<() => number>("int echo_clearings(void)", "1"),
} as const;

/** The behaviour of the next calls. */
export interface Answer {
  readonly status?: number;
  /** The index of the failing call, from 1; if negative, of the first one of all that fail; left out: all. */
  readonly failing?: number;
  /** The values of integer and pointer out-parameters. */
  readonly out?: readonly [bigint, bigint?];
  readonly real?: number;
  /** Bytes of stack that each call uses. */
  readonly deepBytes?: number;
}

/** The library. */
export interface Echo {
  readonly path: string;
  /** Chooses what the next calls give back, and forgets what arrived. */
  begin(answer?: Answer): void;
  /** Gives the library a text about its last error, or none. */
  lastError(some: boolean): void;
  /** Pretends that there are GPUs, with NVSwitches and multicast or without both; 0 ends that. */
  machine(devices: number, switched?: boolean): void;
  /** The last arguments. */
  text(): string;
  /** All that arrived, in order. */
  lines(): readonly string[];
  calls(): number;
  /** Makes calls on other threads wait. */
  hold(wait: boolean): void;
  /** The number of waiting calls. */
  waiting(): number;
  layouts(): string;
  clearings(): number;
}

const source = new URL("native/echo.c", import.meta.url);

/** Compiles and loads the library; an older version lacks what came later. */
export async function echoLibrary(version = 22809): Promise<Echo> {
  const path = compileLibrary(source, `echo-${version}.so`, { VERSION: version });
  const bound = await bind(path, table);
  const get = <K extends keyof typeof table>(name: K) => need(table, bound, name);
  const echo: Echo = {
    path,
    begin: ({ status = 0, failing = 0, out = [0n], real = 0, deepBytes = 0 } = {}) => {
      get("begin")(status, out[0], out[1] ?? 0n, real, deepBytes);
      get("failing")(failing);
    },
    lastError: (some) => void get("lastError")(some ? 1 : 0),
    machine: (devices, switched = false) => void get("machine")(devices, switched ? 1 : 0),
    text: get("text"),
    lines: () => get("lines")().split("\n").slice(0, -1),
    calls: get("calls"),
    hold: (wait) => void get("hold")(wait ? 1 : 0),
    waiting: get("waiting"),
    layouts: get("layouts"),
    clearings: get("clearings"),
  };
  echo.begin();
  return echo;
}
