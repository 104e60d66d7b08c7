/** Errors of native calls: the C function, its device, its status and the library's message. */
import { CommError, type CommErrorFacts, type ErrorText } from "../../../api/index.ts";
import { invalid, textOf } from "../../../api/option-kinds.ts";
import { cudaHint, ncclHint } from "./hints.ts";

/** Facts of a failed native call. */
export interface NativeFailure {
  /** The C function, such as `ncclAllReduce`. */
  readonly cCall: string;
  readonly status: number;
  /** The symbolic name of the status, such as `ncclUnhandledCudaError`. */
  readonly statusName: string;
  /** The library's own words. */
  readonly detail: string;
}

/** A native library returned a status other than success. */
abstract class NativeError extends CommError implements NativeFailure {
  readonly cCall: string;
  readonly status: number;
  readonly statusName: string;
  readonly detail: string;

  constructor(
    failure: NativeFailure,
    hintOf: (statusName: string) => string,
    facts: CommErrorFacts,
  ) {
    super(failureText(failure, hintOf, facts), facts);
    this.cCall = failure.cCall;
    this.status = failure.status;
    this.statusName = failure.statusName;
    this.detail = failure.detail;
  }
}

/** NCCL returned a status other than success. */
export class NcclError extends NativeError {
  static override readonly name: string = "NcclError";
  readonly code = "ERR_COMM_NCCL";

  constructor(failure: NativeFailure, facts: CommErrorFacts = {}) {
    super(failure, ncclHint, facts);
  }

  override seenBy(facts: CommErrorFacts): NcclError {
    return new NcclError(this, { ...facts, cause: this });
  }
}

/** The CUDA runtime returned a status other than success. */
export class CudaError extends NativeError {
  static override readonly name: string = "CudaError";
  readonly code = "ERR_COMM_CUDA";

  constructor(failure: NativeFailure, facts: CommErrorFacts = {}) {
    super(failure, cudaHint, facts);
  }

  override seenBy(facts: CommErrorFacts): CudaError {
    return new CudaError(this, { ...facts, cause: this });
  }
}

/** An error of NCCL or CUDA with where it happened; any other one, or one that names a rank, as it is. */
export function located(error: unknown, facts: CommErrorFacts): unknown {
  return error instanceof CommError && error.rank === undefined ? error.seenBy(facts) : error;
}

function failureText(
  failure: NativeFailure,
  hintOf: (statusName: string) => string,
  facts: CommErrorFacts,
): ErrorText {
  const { cCall, status, statusName, detail } = Object(failure) as NativeFailure;
  const areTexts = [cCall, statusName, detail].every((each) => typeof each === "string");
  if (!areTexts || typeof status !== "number") {
    const needed = "{ cCall, status, statusName, detail }: a text alone names no native call";
    throw invalid("error of a native call", "failure", textOf(failure), needed);
  }
  const hint = hintOf(statusName);
  const headline = `${cCall}: ${statusName} (${status})${detail === "" ? "" : `: ${detail}`}`;
  return { headline, table: [whereOf(facts)].filter(({ length }) => length > 0), hint };
}

/** The known facts: rank, device and call. */
function whereOf({ rank, size, device, collective, call, comm }: CommErrorFacts): string[] {
  const among = size === undefined ? "" : ` of ${size}`;
  const rankText = rank === undefined ? undefined : `rank ${rank}${among}`;
  const number = call === undefined ? "" : `call ${call} `;
  const what = collective === undefined ? "" : `${collective}: `;
  const where = comm === undefined ? undefined : `${what}${number}on "${comm}"`;
  return [rankText, device, where].filter((each) => each !== undefined);
}
