/** The executor: binds calls to device memory, plans each of them once, and submits each as one piece. */

import { HostMemory } from "../../../../algorithms/host-memory.ts";
import { memoryOf, type Probe } from "../../../../api/backend-entry.ts";
import { firstLine } from "../../../../api/error-text.ts";
import { CommClosedError, type DeviceBuffer, InvalidArgumentError } from "../../../../api/index.ts";
import type { BoundBuffer, BoundCall, Executor, SimMemory } from "../../executor.ts";
import type { AdapterRequest } from "./adapter.ts";
import { Bindings } from "./bindings.ts";
import { foreignDevice, type OpenDevice, openDevice, type RequestedLimits } from "./device.ts";
import { Machine } from "./machine.ts";
import { Handles, WebgpuMemory } from "./memory.ts";
import { nativeAddsOf } from "./probe.ts";
import { Recordings } from "./recording.ts";
import { type Stretch, stretchesOf } from "./slabs.ts";
import type { NativeAdds } from "./wgsl/float-sum.ts";

/** Options of an executor. */
export interface ExecutorSettings extends AdapterRequest {
  readonly device: GPUDevice | undefined;
  readonly slabBytes: number | undefined;
  readonly limits: RequestedLimits;
  readonly keepDevice: boolean;
  /** Trust in the device's own addition, by dtype; found by probing where left out. */
  readonly native?: Partial<NativeAdds> | undefined;
}

/** Where a rank's buffer lies on the device. */
export interface BufferPlace {
  readonly buffer: GPUBuffer;
  /** Bytes from the beginning of the GPUBuffer. */
  readonly offset: number;
  readonly size: number;
}

/** State while a world is open. */
interface Open {
  readonly machine: Machine;
  readonly recordings: Recordings;
  readonly order: HostOrder;
}

/** `webgpu()`: one device for all worlds that use this value. */
export class WebgpuExecutor implements Executor {
  readonly name = "webgpu";
  readonly #settings: ExecutorSettings;
  readonly #handles = new Handles();
  #machine: Promise<Machine> | undefined;
  #open: Open | undefined;
  #worlds = 0;

  constructor(settings: ExecutorSettings) {
    this.#settings = settings;
  }

  /** Name of the adapter while a world is open. */
  get adapter(): string | undefined {
    return this.#open?.machine.device.adapter;
  }

  /** The device while a world is open, for commands of the caller's own. */
  get device(): GPUDevice | undefined {
    return this.#open?.machine.device.device;
  }

  /** Trust in the device's own addition while a world is open; all other arithmetic uses integers. */
  get nativeAdd(): NativeAdds | undefined {
    return this.#open?.machine.natives;
  }

  /** Opens the device to check that there is one. */
  async probe(): Promise<Probe> {
    try {
      await this.open();
      const reason = `adapter ${this.adapter}`;
      this.close();
      return { ok: true, reason };
    } catch (error) {
      return { ok: false, reason: firstLine(error) };
    }
  }

  async open(): Promise<void> {
    if (this.#open?.machine.device.failure !== undefined) this.#closeDevice();
    this.#worlds++;
    this.#machine ??= this.#start();
    try {
      const machine = await this.#machine;
      this.#open ??= { machine, recordings: new Recordings(machine), order: new HostOrder() };
    } catch (error) {
      this.#worlds--;
      this.#machine = undefined;
      throw error;
    }
  }

  allocate(device: string, ptr: bigint, byteLength: number): SimMemory {
    const { machine } = this.#assertOpen("alloc");
    machine.device.assertFine();
    const range = machine.slabs.allocate(byteLength, true);
    return new WebgpuMemory(machine, device, ptr, byteLength, range);
  }

  adopt(device: string, ptr: bigint, byteLength: number): SimMemory {
    const { machine } = this.#assertOpen("adopt");
    const range = this.#handles.range(ptr, byteLength);
    return new WebgpuMemory(machine, device, ptr, byteLength, range);
  }

  /**
   * An address for a GPUBuffer of this executor's device, for `comm.adopt(address, dtype, length)`: its bytes are used
   * where they are. It needs the usages STORAGE, COPY_SRC and COPY_DST, and stays the caller's.
   *
   * @throws InvalidArgumentError for a buffer that lacks one of these usages, or has a size that is no multiple of 4 bytes.
   */
  address(buffer: GPUBuffer): bigint {
    return this.#handles.address(buffer);
  }

  /**
   * Where a rank's buffer lies on the device: to be read by the caller's own commands once the operations on it are done.
   * Commands submitted afterwards on the same queue read its contents of that time. Valid until it is disposed.
   *
   * @throws InvalidArgumentError for a buffer that is not on this executor's device, or that spans several GPUBuffers because
   * of `maxBufferSize`: `places` lists all of them.
   */
  place(buffer: DeviceBuffer): BufferPlace {
    const places = this.places(buffer);
    if (places.length === 1) return places[0] as BufferPlace;
    throw new InvalidArgumentError(
      {
        headline: `place: found ${buffer.byteLength} bytes in ${places.length} GPUBuffers of ${this.adapter}, needs a buffer that lies in one`,
        hint: "use places(buffer), or allocate smaller buffers",
      },
      { field: "buffer" },
    );
  }

  /** Where the bytes of a rank's buffer lie, in their order: `place` for buffers that are larger than a GPUBuffer can be. */
  places(buffer: DeviceBuffer): BufferPlace[] {
    const { byteOffset, byteLength } = buffer;
    const memory = memoryOf(buffer);
    if (!(memory instanceof WebgpuMemory) || memory.machine !== this.#open?.machine) {
      throw new InvalidArgumentError(
        { headline: "place: found a buffer of another executor, needs one of this one" },
        { field: "buffer" },
      );
    }
    const { slab, offset } = memory.range;
    const begin = offset + byteOffset;
    if (byteLength === 0) {
      const { bytes: _, ...first } = stretchesOf(slab, begin, begin + 1)[0] as Stretch;
      return [{ ...first, size: 0 }];
    }
    return stretchesOf(slab, begin, begin + byteLength).map(({ bytes, ...each }) => {
      return { ...each, size: bytes };
    });
  }

  execute(call: BoundCall): Promise<void> {
    return this.executeTogether([call]);
  }

  /** One submit for all of them. */
  async executeTogether(calls: readonly BoundCall[]): Promise<void> {
    const open = this.#assertOpen("execute");
    open.machine.device.assertFine();
    return open.order.run(calls, () => submitted(open, calls));
  }

  close(): void {
    this.#worlds--;
    if (this.#worlds > 0) return;
    if (!this.#settings.keepDevice) this.#closeDevice();
    this.#open?.recordings.close();
    this.#open?.machine.slabs.close();
  }

  /** Destroys a kept device; while a world is open the device is destroyed with the last one. */
  release(): void {
    if (this.#worlds === 0) this.#closeDevice();
  }

  async #start(): Promise<Machine> {
    const { device: given, slabBytes, limits } = this.#settings;
    const device: OpenDevice =
      given === undefined ? await openDevice(this.#settings, limits) : foreignDevice(given, limits);
    device.assertFine();
    try {
      const natives = { ...(await nativeAddsOf(device)), ...this.#settings.native };
      // A caller's device may have been lost since it was probed.
      await device.done();
      return new Machine(device, slabBytes, natives);
    } catch (error) {
      device.close();
      throw error;
    }
  }

  #closeDevice(): void {
    this.#open?.recordings.close();
    this.#open?.machine.close();
    this.#open = undefined;
    this.#machine = undefined;
  }

  #assertOpen(action: string): Open {
    if (this.#open !== undefined) return this.#open;
    throw new CommClosedError({
      headline: `${action}: the webgpu executor has no open world`,
      hint: "pass it to sim({ executor }) and create a world with that",
    });
  }
}

/** Submits calls, and waits until they are done. */
async function submitted(
  { machine, recordings }: Open,
  calls: readonly BoundCall[],
): Promise<void> {
  machine.device.assertFine();
  const bindings = new Bindings(machine, calls);
  try {
    const recording = machine.device.watched(() => recordings.of(calls, bindings.spots));
    await bindings.run(recording);
  } finally {
    bindings.close();
  }
}

/** The calls under way on one device. */
class HostOrder {
  /** The last pending call that writes a memory. */
  readonly #writers = new Map<SimMemory, Promise<void>>();
  /** Resolves when the last waiting call is submitted. */
  #waiting: Promise<void> | undefined;

  /** Submits the calls: at once, if no pending call writes memory that they need. */
  run(calls: readonly BoundCall[], submit: () => Promise<void>): Promise<void> {
    const written = hostMemories(calls.flatMap(({ outputs }) => outputs));
    const read = hostMemories(calls.flatMap(({ inputs }) => inputs));
    const before = [...written, ...read].flatMap((memory) => this.#writers.get(memory) ?? []);
    if (this.#waiting !== undefined) before.push(this.#waiting);
    const done = before.length === 0 ? submit() : this.#after(before).then(submit);
    for (const memory of written) this.#writers.set(memory, done);
    const settled = (): void => {
      for (const memory of written) {
        if (this.#writers.get(memory) === done) this.#writers.delete(memory);
      }
    };
    if (written.size > 0) done.then(settled, settled);
    return done;
  }

  /** The failed call itself reports its failure. */
  #after(before: readonly Promise<void>[]): Promise<void> {
    const ready = Promise.allSettled(before).then(() => {
      if (this.#waiting === ready) this.#waiting = undefined;
    });
    this.#waiting = ready;
    return ready;
  }
}

function hostMemories(buffers: readonly (BoundBuffer | undefined)[]): Set<SimMemory> {
  const found = new Set<SimMemory>();
  for (const buffer of buffers) {
    if (buffer?.memory instanceof HostMemory) found.add(buffer.memory);
  }
  return found;
}
