/**
 * Where a device comes from: the page's `navigator.gpu`, or Dawn, which the `webgpu` package brings to Node.
 *
 * The package is loaded here and nowhere else, and only when a world is opened. Dawn's object is kept until the process ends,
 * because collecting it crashes a process that uses its devices.
 */
import { BackendUnavailableError } from "../../../../api/index.ts";

/** WebGPU's `GPUPowerPreference`. */
export type PowerPreference = "low-power" | "high-performance";

/** The wanted adapter. */
export interface AdapterWish {
  readonly powerPreference?: PowerPreference | undefined;
  /** Dawn's own switches, in Node: `["backend=vulkan", "adapter=NVIDIA"]`. */
  readonly dawn?: readonly string[] | undefined;
}

const instances = new Map<string, GPU>();

/**
 * An adapter as wished.
 *
 * @throws BackendUnavailableError when there is none, telling what was looked for.
 */
export async function findAdapter(wish: AdapterWish): Promise<GPUAdapter> {
  const gpu = await instanceOf(wish.dawn ?? []);
  const { powerPreference } = wish;
  let found: GPUAdapter | null = null;
  let cause: unknown;
  try {
    found = await gpu.requestAdapter(powerPreference && { powerPreference });
  } catch (error) {
    // Dawn throws when its switches leave nothing to choose from.
    cause = error;
  }
  if (found !== null) return found;
  const switches = wish.dawn === undefined ? "" : ` with ${wish.dawn.join(", ")}`;
  throw new BackendUnavailableError(
    {
      headline: `webgpu: found no adapter${switches}, needs a GPU that WebGPU can use, or a software one`,
      hint: "in Node install a Vulkan driver and loader (libvulkan1), and set VK_DRIVER_FILES where its file is not found; in a browser see about:gpu; docs/webgpu.md tells more",
    },
    cause === undefined ? {} : { cause },
  );
}

/** The name of an adapter, for people. */
export function adapterName({ vendor, architecture, device, description }: GPUAdapterInfo): string {
  const parts = [description, device, architecture, vendor].filter((part) => part !== "");
  return parts[0] === undefined ? "unnamed adapter" : parts.slice(0, 2).join(", ");
}

async function instanceOf(switches: readonly string[]): Promise<GPU> {
  const own = (globalThis as { readonly navigator?: { readonly gpu?: GPU } }).navigator?.gpu;
  if (own !== undefined && switches.length === 0) return own;
  const key = switches.join("\n");
  const known = instances.get(key);
  if (known !== undefined) return known;
  const { create } = await dawn();
  const made = create([...switches]);
  instances.set(key, made);
  return made;
}

async function dawn(): Promise<typeof import("webgpu")> {
  try {
    return await import("webgpu");
  } catch (cause) {
    throw notLoaded(cause);
  }
}

/**
 * Why there is no WebGPU at all: nothing brings it, or what does cannot be loaded here.
 *
 * @internal
 */
export function notLoaded(cause: unknown): BackendUnavailableError {
  const [reason = ""] = (cause instanceof Error ? cause.message : String(cause)).split("\n");
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  // What a browser says, which looks for no packages, has no such code.
  const isBroken = code === "ERR_DLOPEN_FAILED";
  return new BackendUnavailableError(
    {
      headline: `webgpu: there is no navigator.gpu, and the package \`webgpu\` (Dawn) did not load: ${reason}`,
      hint: isBroken
        ? "its build does not fit this system: another version of webgpu, or a newer system"
        : "in Node: npm install webgpu; in a browser: one with WebGPU, on a secure page",
    },
    { cause },
  );
}
