/** Loads koffi with the first native library, and writes the C types of the prototypes for it. */
import type * as Koffi from "koffi";
import { firstLine } from "../../../api/error-text.ts";
import { BackendUnavailableError } from "../../../api/index.ts";
import { uniqueIdBytes } from "./layouts.ts";

type KoffiModule = typeof Koffi;

let loading: Promise<KoffiModule> | undefined;

/**
 * Loads the koffi package once.
 *
 * @throws BackendUnavailableError if the package is missing, too old or without a build for this platform.
 */
export function koffi(): Promise<KoffiModule> {
  loading ??= import("koffi").then(
    (module) => declareTypes(recent(module)),
    (cause: unknown) => {
      throw new BackendUnavailableError(
        {
          headline: `the package koffi cannot be loaded: ${firstLine(cause)}`,
          hint: "npm install koffi: the NCCL backend reaches native libraries through it",
        },
        { cause },
      );
    },
  );
  return loading;
}

/** Least version, equal to the peer dependency in `package.json`. */
const least = [3, 3] as const;

/**
 * Checks the version of the module: older versions load, but lack functions.
 *
 * @internal
 */
export function recent<M extends { readonly version?: string }>(
  module: M & { readonly default?: { readonly version?: string } },
): M {
  const version = module.version ?? module.default?.version ?? "unknown";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > least[0] || (major === least[0] && minor >= least[1])) return module;
  const needed = least.join(".");
  throw new BackendUnavailableError({
    headline: `the package koffi is version ${version}, needs ${needed} or newer`,
    hint: `npm install koffi@^${needed}.0: the NCCL backend reaches native libraries through it`,
  });
}

/** Stack of an ordinary thread, which NCCL's initialisation needs; koffi's default for background calls is 128 KiB. */
export const stackBytes = 8 << 20;

/** Sets large stacks; koffi allows this only before its first use, which may be in other code. */
function enlargeStacks(module: KoffiModule): void {
  try {
    const settings = module.config();
    module.config({ ...settings, sync_stack_size: stackBytes, async_stack_size: stackBytes });
  } catch {
    // `hasLargeStacks` stays false, so that no call with a large stack runs on koffi's threads.
  }
}

/** True if koffi's threads have the stack that NCCL's initialisation needs. */
export async function hasLargeStacks(): Promise<boolean> {
  return ((await koffi()).config().async_stack_size ?? 0) >= stackBytes;
}

/** The C types of the prototypes in koffi's own words. An `ncclUniqueId` is passed by value. */
const plainTypes = new Map([
  ...[
    ...["ncclComm_t", "ncclWindow_t", "cudaStream_t", "cudaEvent_t", "cudaGraph_t"],
    ...["cudaGraphExec_t", "nvmlDevice_t"],
  ].map((handle) => [handle, "void*"] as const),
  ...[
    ...["ncclResult_t", "ncclDataType_t", "ncclRedOp_t", "ncclScalarResidence_t"],
    // A `CUdevice` is an integer, not an address.
    ...["CUdevice", "cudaError_t", "CUresult", "nvmlReturn_t"],
  ].map((enumeration) => [enumeration, "int"] as const),
  ...["ncclConfig_t", "ncclSimInfo_t"].map((structure) => [structure, "void"] as const),
  ["ncclUniqueId", "twinccl_unique_id"] as const,
]);

/**
 * A declaration without the names of NCCL's and CUDA's types. A name of koffi holds for the whole process, and can be declared
 * once: programs need these names for their own calls.
 */
export function inPlainTypes(c: string): string {
  return c.replaceAll(/\w+/g, (word) => plainTypes.get(word) ?? word);
}

/** Declares the structure that is passed by value, unless another copy of this package has declared it. */
function declareTypes(module: KoffiModule): KoffiModule {
  enlargeStacks(module);
  const name = inPlainTypes("ncclUniqueId");
  try {
    module.type(name);
  } catch {
    module.struct(name, { internal: module.array("uint8_t", uniqueIdBytes, "Typed") });
  }
  return module;
}

let view: ((ptr: bigint, bytes: number) => ArrayBuffer) | undefined;

/** Loads what `hostView` needs; called when libraries are loaded. */
export async function prepareHostView(): Promise<void> {
  view = (await koffi()).view;
}

/** The bytes at an address; valid until the memory is freed. */
export function hostView(ptr: bigint, bytes: number): Uint8Array {
  if (view === undefined) throw new TypeError("hostView is used after prepareHostView");
  return new Uint8Array(view(ptr, bytes));
}
