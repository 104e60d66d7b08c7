/** What is known about versions of NCCL: whose plans, and whose symmetric kernels load wrongly. */
import { bytesOf, type Question, questionPlace } from "../../api/index.ts";

/** True for the versions whose plans are known. */
export function isPlanned(versionCode: number): boolean {
  return Math.floor(versionCode / 100) === 228;
}

/**
 * From 2.27.3 to 2.29.7 the symmetric kernels give wrong sums for 1- and 2-byte types at addresses that are no multiple of
 * 4. Such a call never reaches them.
 */
export function hasLoadDefect(versionCode: number): boolean {
  return versionCode >= 22703 && versionCode <= 22907;
}

const wordBytes = 4;

/**
 * Why a symmetric call might be computed wrongly, where the plans are not known: every address that is no multiple of 4
 * counts, whichever kernel would be chosen.
 */
export function misalignment(question: Question): string | undefined {
  const { collective, dtype = "float32", count = 0 } = question;
  const place = questionPlace(question);
  const bytes = bytesOf(dtype);
  if (place === undefined || bytes >= wordBytes) return undefined;
  const block = collective === "allReduce" ? 0 : count * bytes;
  const starts = [place.send, place.recv, place.send + block, place.recv + block];
  if (starts.every((start) => start % wordBytes === 0)) return undefined;
  return `symmetric ${dtype} at an address that is no multiple of 4: this NCCL may give wrong bits for it; align buffers and blocks to 4 bytes, or allocate without symmetric`;
}
