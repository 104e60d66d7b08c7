/** Settings that NCCL reads once per process: the first communicator fixes them, and later ones must match. */
import type { NcclPin } from "../../../algorithms/index.ts";
import { InvalidArgumentError, UnsupportedError } from "../../../api/index.ts";
import { setPlanVariables } from "../discovery/known-versions.ts";
import { PlanLogFile } from "./plan-log.ts";
import { assertReachesNccl, isSetForStart } from "./start-variables.ts";

/** Variables of NCCL that give pinned numbers, each read once per process. */
const numberVariables = {
  buffSize: "NCCL_BUFFSIZE",
  llBuffSize: "NCCL_LL_BUFFSIZE",
  ll128BuffSize: "NCCL_LL128_BUFFSIZE",
  threads: "NCCL_NTHREADS",
  ll128Threads: "NCCL_LL128_NTHREADS",
} as const;

const nvlsVariable = "NCCL_NVLS_ENABLE";
const sharingVariable = "NCCL_COMM_SPLIT_SHARE_RESOURCES";

type NumberField = keyof typeof numberVariables;

/** Numbers other than NCCL's defaults. */
export type PinnedNumbers = Pick<NcclPin, NumberField>;

const numberFields = Object.keys(numberVariables) as NumberField[];

/** Settings of the first world. */
interface Settled {
  /** Original values of the variables, used for unpinned numbers. */
  readonly given: Readonly<Record<NumberField, string>>;
  /** Values read by NCCL. */
  readonly values: Readonly<Record<NumberField, string>>;
  readonly log?: PlanLogFile;
}

/**
 * The settings fixed so far.
 *
 * @internal
 */
export class ProcessSettings {
  readonly #env: NodeJS.ProcessEnv;
  readonly #makeLog: () => PlanLogFile;
  #settled: Settled | undefined;

  #nvls: boolean | undefined;
  /** Set variables that change plans; NCCL reads each once. */
  readonly #planVariables = new Set<string>();
  /** Variables that the first world's pin has set. */
  readonly #pinned = new Set<string>();

  constructor(env = process.env, makeLog = (): PlanLogFile => new PlanLogFile()) {
    this.#env = env;
    this.#makeLog = makeLog;
  }

  /**
   * Fixes the settings; called before the first use of NCCL by a world. Returns NCCL's log file if plans are read.
   *
   * @throws InvalidArgumentError for numbers other than the first world's. UnsupportedError for `readPlan` if NCCL already
   * runs without its log.
   */
  settle(pin: PinnedNumbers, readPlan: boolean): PlanLogFile | undefined {
    for (const name of setPlanVariables(this.#env)) {
      if (!isSetForStart(name) && !this.#pinned.has(name)) this.#planVariables.add(name);
    }
    const settled = this.#settled;
    if (settled === undefined) return this.#first(pin, readPlan);
    for (const field of numberFields) {
      const requested = pin[field] === undefined ? settled.given[field] : text(pin[field]);
      const found = settled.values[field];
      if (requested === found) continue;
      throw new InvalidArgumentError(
        {
          headline: `nccl: plan.${field}: found ${words(requested)}, but NCCL runs in this process with ${words(found)}`,
          hint: "NCCL reads it once per process: give every world the same, or start another process",
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
   * Fixes in-switch reduction (NVLS), because its bits are not predictable: off unless the first world requests it, with any
   * value of the variable. Called before the first use of NCCL by a world.
   *
   * @throws InvalidArgumentError for a setting other than the first world's, and for a request while the variable is 0.
   * UnsupportedError if a worker thread would have to change the variable.
   */
  settleNvls(requested: boolean): void {
    if (this.#nvls !== undefined && this.#nvls !== requested) {
      throw new InvalidArgumentError(
        {
          headline: `nccl: nvls: found ${requested}, but NCCL runs in this process with ${this.#nvls}`,
          hint: "NCCL reads it once per process: give every world the same, or start another process",
        },
        { field: "nvls" },
      );
    }
    const given = this.#env[nvlsVariable] ?? "";
    if (!requested && given !== "0") {
      assertReachesNccl([nvlsVariable]);
      this.#env[nvlsVariable] = "0";
    }
    if (requested && given !== "" && isZero(given)) {
      throw new InvalidArgumentError(
        {
          headline: `nccl: nvls: found true, but this process was started with ${nvlsVariable}=${given}`,
          hint: `unset ${nvlsVariable}, or leave nvls out`,
        },
        { field: "nvls" },
      );
    }
    this.#nvls = requested;
  }

  /**
   * NCCL aborts a communicator with all that share its resources: their calls would complete with wrong results.
   *
   * @throws InvalidArgumentError if a split shares the resources of its parent. NCCL puts its configuration file into the environment
   * at its first use.
   */
  assertNothingShared(): void {
    const given = this.#env[sharingVariable] ?? "";
    if (isZero(given)) return;
    throw new InvalidArgumentError(
      {
        headline: `nccl: ${sharingVariable}: found ${given}, needs 0: a communicator that ends would end calls of its parent`,
        hint: `unset ${sharingVariable}, in nccl.conf too`,
      },
      { field: sharingVariable },
    );
  }

  /** The effective numbers, for predictions. */
  readOnce(): PinnedNumbers {
    const values = this.#settled?.values;
    const given = numberFields.filter((field) => (values?.[field] ?? "") !== "");
    return Object.fromEntries(given.map((field) => [field, numberOf(values?.[field] ?? "")]));
  }

  /** Reason why NCCL's plans differ from the usual ones in this process; `undefined` if they do not. */
  unusual(): string | undefined {
    if (this.#nvls === true) return "in-switch reduction is on";
    const names = [...this.#planVariables];
    if (names.length === 0) return undefined;
    return `${names.join(", ")} ${names.length === 1 ? "is" : "are"} set`;
  }

  #first(pin: PinnedNumbers, readPlan: boolean): PlanLogFile | undefined {
    const given = this.#numbers();
    const pinned = numberFields.filter((field) => pin[field] !== undefined);
    const named = [
      ...pinned.map((field) => numberVariables[field]),
      ...(readPlan ? ["NCCL_DEBUG"] : []),
    ];
    if (named.length > 0) assertReachesNccl(named);
    // If no file can be created, this throws before any setting is fixed.
    const log = readPlan ? this.#makeLog() : undefined;
    for (const field of pinned) {
      this.#pinned.add(numberVariables[field]);
      this.#env[numberVariables[field]] = text(pin[field]);
    }
    const values = this.#numbers();
    if (log === undefined) {
      this.#settled = { given, values };
      return undefined;
    }
    Object.assign(this.#env, log.variables);
    this.#settled = { given, values, log };
    return log;
  }

  /** The values of the variables. */
  #numbers(): Record<NumberField, string> {
    const found = numberFields.map((field) => [field, this.#env[numberVariables[field]] ?? ""]);
    return Object.fromEntries(found) as Record<NumberField, string>;
  }
}

/** The settings of this process. */
export const processSettings = new ProcessSettings();

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

/** A value as NCCL parses it: hexadecimal after 0x, octal after 0, up to the first other letter; words count as 0. */
function numberOf(value: string): number {
  const [, sign, digits = "0"] = /^\s*([+-]?)(0x[\da-f]+|0[0-7]*|\d+)/i.exec(value) ?? [];
  const base = /^0x/i.test(digits) ? 16 : digits.startsWith("0") ? 8 : 10;
  const size = Number.parseInt(digits, base);
  return sign === "-" ? -size : size;
}

/** True if NCCL parses a value as 0; words count as 0. */
function isZero(value: string): boolean {
  return !/^\s*[+-]?0*(x0*[1-9a-f]|[1-9])/i.test(value);
}

function words(value: string): string {
  return value === "" ? "NCCL's default" : value;
}
