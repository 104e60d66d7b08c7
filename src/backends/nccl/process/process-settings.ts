/** Settings that NCCL reads once per process: the first communicator fixes them, a later one may not differ. */
import type { NcclPin } from "../../../algorithms/index.ts";
import { InvalidArgumentError, UnsupportedError } from "../../../api/index.ts";
import { setPlanVariables } from "../discovery/known-versions.ts";
import { PlanLogFile } from "./plan-log.ts";
import { assertReachesNccl, isSetForStart } from "./start-variables.ts";

/** Buffer sizes by the variables that NCCL reads them from. */
const bufferVariables = {
  buffSize: "NCCL_BUFFSIZE",
  llBuffSize: "NCCL_LL_BUFFSIZE",
  ll128BuffSize: "NCCL_LL128_BUFFSIZE",
} as const;

const nvlsVariable = "NCCL_NVLS_ENABLE";

type BufferField = keyof typeof bufferVariables;

/** Buffer sizes that are not NCCL's own. */
export type BufferSizes = Pick<NcclPin, BufferField>;

const bufferFields = Object.keys(bufferVariables) as BufferField[];

/** The settings of the first world. */
interface Settled {
  /** The earlier values of the variables, which hold where nothing is pinned. */
  readonly given: Readonly<Record<BufferField, string>>;
  /** The values that NCCL read. */
  readonly values: Readonly<Record<BufferField, string>>;
  readonly log?: PlanLogFile;
}

/**
 * The fixed settings so far.
 *
 * @internal
 */
export class ProcessSettings {
  readonly #env: NodeJS.ProcessEnv;
  readonly #makeLog: () => PlanLogFile;
  #settled: Settled | undefined;

  #nvls: boolean | undefined;
  /** Variables that change plans: NCCL keeps what it once read. */
  readonly #planVariables = new Set<string>();

  constructor(env = process.env, makeLog = (): PlanLogFile => new PlanLogFile()) {
    this.#env = env;
    this.#makeLog = makeLog;
  }

  /**
   * To be called before NCCL is used for a world; returns the file of its log where plans are read.
   *
   * @throws InvalidArgumentError for other buffer sizes than the first world's. UnsupportedError for plans to be read
   *   where NCCL already runs without its log.
   */
  settle(pin: BufferSizes, readPlan: boolean): PlanLogFile | undefined {
    for (const name of setPlanVariables(this.#env)) {
      if (!isSetForStart(name)) this.#planVariables.add(name);
    }
    const settled = this.#settled;
    if (settled === undefined) return this.#first(pin, readPlan);
    for (const field of bufferFields) {
      const wanted = pin[field] === undefined ? settled.given[field] : text(pin[field]);
      const found = settled.values[field];
      if (wanted === found) continue;
      throw new InvalidArgumentError(
        {
          headline: `nccl: plan.${field}: found ${words(wanted)}, but NCCL runs in this process with ${words(found)}`,
          hint: "NCCL reads buffer sizes once per process: give every world the same, or start another process",
        },
        { field: `plan.${field}` },
      );
    }
    if (!readPlan) return undefined;
    if (settled.log !== undefined) return settled.log;
    throw new UnsupportedError(
      {
        headline:
          "nccl: readPlan: NCCL was used in this process without it, and reads NCCL_DEBUG once",
        hint: "give readPlan to the first nccl() of the process",
      },
      { field: "readPlan" },
    );
  }

  /**
   * In-switch reduction, with bits that cannot be predicted: off unless the first world requests it, whatever its variable
   * says. To be called before NCCL is used for a world.
   *
   * @throws InvalidArgumentError for a world that wants it otherwise than the first one, and for one that wants it where
   *   the variable was set to 0. UnsupportedError where the variable would have to be changed from a worker thread.
   */
  settleNvls(wanted: boolean): void {
    if (this.#nvls !== undefined && this.#nvls !== wanted) {
      throw new InvalidArgumentError(
        {
          headline: `nccl: nvls: found ${wanted}, but NCCL runs in this process with ${this.#nvls}`,
          hint: "NCCL reads it once per process: give every world the same, or start another process",
        },
        { field: "nvls" },
      );
    }
    const given = this.#env[nvlsVariable] ?? "";
    if (!wanted && given !== "0") {
      assertReachesNccl([nvlsVariable]);
      this.#env[nvlsVariable] = "0";
    }
    if (wanted && given !== "" && isZero(given)) {
      throw new InvalidArgumentError(
        {
          headline: `nccl: nvls: found true, but this process was started with ${nvlsVariable}=${given}`,
          hint: `unset ${nvlsVariable}, or leave nvls out`,
        },
        { field: "nvls" },
      );
    }
    this.#nvls = wanted;
  }

  /** The buffer sizes that hold, for predictions. */
  buffers(): BufferSizes {
    const values = this.#settled?.values;
    const given = bufferFields.filter((field) => (values?.[field] ?? "") !== "");
    return Object.fromEntries(given.map((field) => [field, Number(values?.[field])]));
  }

  /** Why NCCL does not take its usual plans here, as far as it was settled; `undefined` where it does. */
  unusual(): string | undefined {
    if (this.#nvls === true) return "in-switch reduction is on";
    const names = [...this.#planVariables];
    if (names.length === 0) return undefined;
    return `${names.join(", ")} ${names.length === 1 ? "is" : "are"} set`;
  }

  #first(pin: BufferSizes, readPlan: boolean): PlanLogFile | undefined {
    const given = this.#sizes();
    const pinned = bufferFields.filter((field) => pin[field] !== undefined);
    const named = [
      ...pinned.map((field) => bufferVariables[field]),
      ...(readPlan ? ["NCCL_DEBUG"] : []),
    ];
    if (named.length > 0) assertReachesNccl(named);
    // Fails where no file can be made; then nothing is settled.
    const log = readPlan ? this.#makeLog() : undefined;
    for (const field of pinned) this.#env[bufferVariables[field]] = text(pin[field]);
    const values = this.#sizes();
    if (log === undefined) {
      this.#settled = { given, values };
      return undefined;
    }
    Object.assign(this.#env, log.variables);
    this.#settled = { given, values, log };
    return log;
  }

  /** The values of the variables. */
  #sizes(): Record<BufferField, string> {
    const sizes = bufferFields.map((field) => [field, this.#env[bufferVariables[field]] ?? ""]);
    return Object.fromEntries(sizes) as Record<BufferField, string>;
  }
}

/** Those of this process. */
export const processSettings = new ProcessSettings();

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

/** True when NCCL reads a value as 0, as it does words. */
function isZero(value: string): boolean {
  return !/^\s*[+-]?0*(x0*[1-9a-f]|[1-9])/i.test(value);
}

function words(value: string): string {
  return value === "" ? "NCCL's default" : value;
}
