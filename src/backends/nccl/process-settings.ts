/** What NCCL reads once in the life of a process: the first communicator settles it, a later one may not differ. */
import type { NcclPin } from "../../algorithms/index.ts";
import { InvalidArgumentError, UnsupportedError } from "../../api/index.ts";
import { PlanLogFile } from "./plan-log-file.ts";
import { assertReachesNccl } from "./variables.ts";

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

/**
 * What is settled so far.
 *
 * @internal
 */
export class ProcessSettings {
  readonly #env: NodeJS.ProcessEnv;
  readonly #makeLog: () => PlanLogFile;
  #settled:
    | { readonly values: Readonly<Record<BufferField, string>>; log?: PlanLogFile }
    | undefined;

  #nvls: boolean | undefined;

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
    const settled = this.#settled;
    if (settled === undefined) return this.#first(pin, readPlan);
    for (const field of bufferFields) {
      const [wanted, found] = [text(pin[field]), settled.values[field]];
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
   * In-switch reduction, whose bits cannot be predicted: off unless the first world asks for it. To be called before NCCL
   * is used for a world.
   *
   * @throws InvalidArgumentError for a world that wants it otherwise than the first one.
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
    if (!wanted && this.#env[nvlsVariable] !== "0") {
      assertReachesNccl([nvlsVariable]);
      this.#env[nvlsVariable] = "0";
    }
    this.#nvls = wanted;
  }

  /** The buffer sizes that hold, for predictions. */
  buffers(): BufferSizes {
    const values = this.#settled?.values;
    const given = bufferFields.filter((field) => (values?.[field] ?? "") !== "");
    return Object.fromEntries(given.map((field) => [field, Number(values?.[field])]));
  }

  #first(pin: BufferSizes, readPlan: boolean): PlanLogFile | undefined {
    const given = bufferFields.filter((field) => pin[field] !== undefined);
    const named = [
      ...given.map((field) => bufferVariables[field]),
      ...(readPlan ? ["NCCL_DEBUG"] : []),
    ];
    if (named.length > 0) assertReachesNccl(named);
    for (const field of given) this.#env[bufferVariables[field]] = text(pin[field]);
    const values = Object.fromEntries(
      bufferFields.map((field) => [field, this.#env[bufferVariables[field]] ?? ""]),
    ) as Record<BufferField, string>;
    if (!readPlan) {
      this.#settled = { values };
      return undefined;
    }
    const log = this.#makeLog();
    Object.assign(this.#env, log.variables);
    this.#settled = { values, log };
    return log;
  }
}

/** Those of this process. */
export const processSettings = new ProcessSettings();

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

function words(value: string): string {
  return value === "" ? "NCCL's default" : value;
}
