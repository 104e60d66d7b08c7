/**
 * Windows of symmetric memory. The first call that uses an allocation registers it as a window of its communicator.
 * Registration is collective and follows the order of the calls.
 */

import {
  type Memory,
  memoryOf,
  type RankCall,
  symmetricPlace,
} from "../../../api/backend-entry.ts";
import { getOrCreate } from "../../../api/get-or-create.ts";
import type { DeviceBuffer } from "../../../api/index.ts";
import { runAll } from "../../../api/run-all.ts";
import type { LocalMember } from "../device/local-rank.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { CommLock } from "./comm-lock.ts";

const sides = ["send", "recv"] as const;
type Side = (typeof sides)[number];

/** The windows of one communicator. */
export class RegisteredWindows {
  readonly #nccl: NcclCalls;
  readonly #members: ReadonlyMap<number, LocalMember>;
  readonly #lock: CommLock;
  readonly #locate: (member: LocalMember, step: () => void) => void;
  /** By member, and by address of the allocation. */
  readonly #windows = new Map<LocalMember, Map<bigint, bigint>>();
  #isRegistering = false;
  #isAbandoned = false;

  /** `locate` adds the communicator and a member to the error of a step. */
  constructor(
    nccl: NcclCalls,
    members: ReadonlyMap<number, LocalMember>,
    lock: CommLock,
    locate: (member: LocalMember, step: () => void) => void,
  ) {
    this.#nccl = nccl;
    this.#members = members;
    this.#lock = lock;
    this.#locate = locate;
  }

  /** True if a call uses symmetric memory without a window. */
  needsRegistration(call: RankCall): boolean {
    return symmetricPlace(call) !== undefined && sides.some((side) => !this.#has(call, side));
  }

  /** Registers the memory of calls with symmetric memory that has no window. */
  register(calls: readonly RankCall[]): void {
    for (const side of sides) this.#registerSide(calls, side);
  }

  /**
   * Like `register`, for one rank's calls on another thread, where NCCL waits for ranks of other processes. True once all
   * memory is registered, or if a call uses disposed memory and will be refused. False if the communicator ends first, which
   * each registration checks.
   */
  async registerInBackground(calls: readonly RankCall[], isOver: () => boolean): Promise<boolean> {
    for (const call of calls) {
      if (symmetricPlace(call) === undefined) continue;
      for (const side of sides) {
        if (this.#has(call, side)) continue;
        if (isOver()) return false;
        if (isDisposed(call)) return true;
        await this.#registerSideInBackground(call, side);
      }
    }
    return true;
  }

  async #registerSideInBackground(call: RankCall, side: Side): Promise<void> {
    const { handle, local } = this.#member(call);
    const { ptr, byteLength } = windowMemory(call, side);
    const device = local.device.threadDevice;
    local.heldMemory.hold(ptr);
    try {
      const register = () => this.#nccl.registerWindowInBackground(device, handle, ptr, byteLength);
      this.#isRegistering = true;
      const window = await this.#lock.run(register);
      this.#registered(call).set(ptr, window);
    } finally {
      this.#isRegistering = false;
      if (!this.#isAbandoned) local.heldMemory.release(ptr);
    }
  }

  /** Abandons all windows and their memory, which NCCL may still use. */
  abandon(): void {
    this.#isAbandoned = true;
    this.holdUntilHandlesEnd();
  }

  /** Holds the memory until the returned function is called. NCCL releases the windows with the communicator's handles. */
  holdUntilHandlesEnd(): () => void {
    const taken = [...this.#windows].flatMap(([{ local }, registered]) =>
      Array.from(registered.keys(), (ptr) => ({ heldMemory: local.heldMemory, ptr })),
    );
    this.#windows.clear();
    for (const { heldMemory, ptr } of taken) heldMemory.hold(ptr);
    this.#lock.release();
    return () => {
      for (const { heldMemory, ptr } of taken) heldMemory.release(ptr);
    };
  }

  /** True while a registration is in progress on another thread, where it waits for other ranks. */
  get isRegistering(): boolean {
    return this.#isRegistering;
  }

  /**
   * Deregisters the window of memory that is about to be freed. False while another thread calls NCCL on the communicator: the
   * memory is then held until that call ends.
   */
  deregister(worldRank: number, ptr: bigint): boolean {
    for (const [member, registered] of this.#windows) {
      const { local } = member;
      const window = registered.get(ptr);
      if (local.worldRank !== worldRank || window === undefined) continue;
      if (this.#lock.isHeld) {
        local.heldMemory.hold(ptr);
        this.#lock.whenFree(() => local.heldMemory.release(ptr));
        return false;
      }
      // A window left after an error is retried when the communicator ends.
      this.#deregister(member, window);
      registered.delete(ptr);
    }
    return true;
  }

  /** Deregisters all windows. */
  release(): void {
    const steps = [...this.#windows].flatMap(([member, registered]) => {
      return Array.from(registered.values(), (window) => () => this.#deregister(member, window));
    });
    this.#windows.clear();
    runAll(steps);
  }

  #deregister(member: LocalMember, window: bigint): void {
    this.#locate(member, () => {
      member.local.device.use();
      this.#nccl.deregisterWindow(member.handle, window);
    });
  }

  #registerSide(calls: readonly RankCall[], side: Side): void {
    const missing = calls.filter((call) => !this.#has(call, side));
    if (missing.length === 0) return;
    const slots = missing.map(() => new BigUint64Array(1));
    this.#nccl.group(() => {
      missing.forEach((call, index) => {
        const { handle, local } = this.#member(call);
        const { ptr, byteLength } = windowMemory(call, side);
        local.device.use();
        this.#nccl.registerWindow(handle, ptr, byteLength, slots[index] as BigUint64Array);
      });
    });
    missing.forEach((call, index) => {
      const { ptr } = windowMemory(call, side);
      this.#registered(call).set(ptr, slots[index]?.[0] ?? 0n);
    });
  }

  /** True if the memory has a window or needs none. NCCL 2.29 refuses empty memory, which is empty on all ranks. */
  #has(call: RankCall, side: Side): boolean {
    if (call[side] === undefined) return true;
    const memory = windowMemory(call, side);
    if (memory.byteLength === 0) return true;
    return this.#registered(call).has(memory.ptr);
  }

  #registered(call: RankCall): Map<bigint, bigint> {
    return getOrCreate(this.#windows, this.#member(call), () => new Map());
  }

  #member({ rank }: RankCall): LocalMember {
    return this.#members.get(rank) as LocalMember;
  }
}

/** Deregisters a rank's memory on all communicators, even after an error on one. True if no window remains. */
export function deregisterAll(
  comms: readonly { readonly windows: RegisteredWindows }[],
  worldRank: number,
  ptr: bigint,
): boolean {
  let areGone = true;
  runAll(
    comms.map(({ windows }) => () => {
      if (!windows.deregister(worldRank, ptr)) areGone = false;
    }),
  );
  return areGone;
}

/** True if memory of a call was disposed after the call. */
export function isDisposed({ send, recv }: RankCall): boolean {
  return send?.disposed === true || recv?.disposed === true;
}

/** The memory of a buffer that the call has. */
function windowMemory(call: RankCall, side: Side): Memory {
  return memoryOf(call[side] as DeviceBuffer);
}
