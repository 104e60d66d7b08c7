/**
 * Symmetric memory as NCCL knows it: allocations that are registered as windows of a communicator when a call first uses
 * them. Registration is collective, so it happens in the order of the calls.
 */
import { type Memory, type RankCall, symmetricPlace } from "../../../api/index.ts";
import { runAll, settlesWithin } from "../common/async.ts";
import type { LocalMember } from "../device/local-rank.ts";
import { located } from "../result/errors.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { CommLock } from "./comm-lock.ts";

/** An allocation's window, by its address, on one member. */
type Registered = Map<bigint, bigint>;

/** The windows of one communicator. */
export class RegisteredWindows {
  readonly #nccl: NcclCalls;
  readonly #members: ReadonlyMap<number, LocalMember>;
  readonly #lock: CommLock;
  readonly #windows = new Map<number, Registered>();
  #registering: Promise<void> | undefined;
  #isAbandoned = false;

  constructor(nccl: NcclCalls, members: ReadonlyMap<number, LocalMember>, otherThreads: CommLock) {
    this.#nccl = nccl;
    this.#members = members;
    this.#lock = otherThreads;
  }

  /** A call uses symmetric memory that has no window yet. */
  needsRegistration(call: RankCall): boolean {
    if (symmetricPlace(call) === undefined) return false;
    return !this.#has(call, "send") || !this.#has(call, "recv");
  }

  /** Registers the symmetric memory of calls that use it and has no window yet. */
  register(calls: readonly RankCall[]): void {
    const [first] = calls;
    if (first === undefined || symmetricPlace(first) === undefined) return;
    this.#registerSide(calls, "send");
    this.#registerSide(calls, "recv");
  }

  /**
   * The same for this process's calls, one rank's, on another thread: NCCL waits there for ranks of other processes. True when
   * all is registered, or a call uses memory that was disposed, for which it is refused; false when it is over before that,
   * which is checked before each registration.
   */
  async registerInBackground(calls: readonly RankCall[], isOver: () => boolean): Promise<boolean> {
    for (const call of calls) {
      if (symmetricPlace(call) === undefined) continue;
      for (const side of ["send", "recv"] as const) {
        if (this.#has(call, side)) continue;
        if (isOver()) return false;
        if (isDisposed(call)) return true;
        this.#registering = this.#registerSideInBackground(call, side);
        await this.#registering;
      }
    }
    return true;
  }

  async #registerSideInBackground(call: RankCall, side: "send" | "recv"): Promise<void> {
    const { handle, local } = this.#members.get(call.rank) as LocalMember;
    const { ptr, byteLength } = memoryOf(call, side);
    const device = local.device.threadDevice;
    local.heldMemory.hold(ptr);
    try {
      const register = () => this.#nccl.registerWindowInBackground(device, handle, ptr, byteLength);
      const window = await this.#lock.run(register);
      this.#registered(call.rank).set(ptr, window);
    } finally {
      this.#registering = undefined;
      if (!this.#isAbandoned) local.heldMemory.release(ptr);
    }
  }

  /** Leaves all behind: NCCL may go on using it. */
  abandon(): void {
    this.#isAbandoned = true;
    this.holdUntilHandlesEnd();
  }

  /**
   * NCCL releases the windows with the handles of the communicator. The memory is held until the returned function is called.
   */
  holdUntilHandlesEnd(): () => void {
    const taken = [...this.#windows].flatMap(([rank, registered]) => {
      const { heldMemory } = (this.#members.get(rank) as LocalMember).local;
      return [...registered.keys()].map((ptr) => ({ heldMemory, ptr }));
    });
    this.#windows.clear();
    for (const { heldMemory, ptr } of taken) heldMemory.hold(ptr);
    this.#lock.release();
    return () => {
      for (const { heldMemory, ptr } of taken) heldMemory.release(ptr);
    };
  }

  /** True where NCCL registers no memory, in which it waits for other ranks, or has done so within a bound. */
  async registrationSettles(boundMs: number): Promise<boolean> {
    return this.#registering === undefined || settlesWithin(boundMs, this.#registering);
  }

  /**
   * The memory at an address is about to be given back: its window goes first. False: that would be a second call on the
   * communicator beside one on another thread; the memory is held until that one ends.
   */
  deregister(worldRank: number, ptr: bigint): boolean {
    for (const [rank, registered] of this.#windows) {
      const member = this.#members.get(rank);
      const window = registered.get(ptr);
      if (member?.local.worldRank !== worldRank || window === undefined) continue;
      if (this.#lock.isHeld) {
        const { heldMemory } = member.local;
        heldMemory.hold(ptr);
        this.#lock.whenFree(() => heldMemory.release(ptr));
        return false;
      }
      try {
        member.local.device.use();
        this.#nccl.deregisterWindow(member.handle, window);
      } catch (error) {
        throw located(error, { rank: worldRank, device: member.local.device.name });
      }
      // One that is still there is tried again when the communicator ends.
      registered.delete(ptr);
    }
    return true;
  }

  /** Gives all windows back. */
  release(): void {
    const steps = [...this.#windows].flatMap(([rank, registered]) => {
      const { handle, local } = this.#members.get(rank) as LocalMember;
      return [...registered.values()].map((window) => () => {
        local.device.use();
        this.#nccl.deregisterWindow(handle, window);
      });
    });
    this.#windows.clear();
    runAll(steps);
  }

  #registerSide(calls: readonly RankCall[], side: "send" | "recv"): void {
    const missing = calls.filter((call) => !this.#has(call, side));
    if (missing.length === 0) return;
    const slots = missing.map(() => new BigUint64Array(1));
    this.#nccl.group(() => {
      missing.forEach((call, index) => {
        const { handle, local } = this.#members.get(call.rank) as LocalMember;
        const { ptr, byteLength } = memoryOf(call, side);
        local.device.use();
        this.#nccl.registerWindow(handle, ptr, byteLength, slots[index] as BigUint64Array);
      });
    });
    missing.forEach((call, index) => {
      const { ptr } = memoryOf(call, side);
      this.#registered(call.rank).set(ptr, slots[index]?.[0] ?? 0n);
    });
  }

  /** True when the memory has a window, or needs none: NCCL 2.29 refuses memory of no bytes, which all ranks bring then. */
  #has(call: RankCall, side: "send" | "recv"): boolean {
    const memory = call[side]?.allocation.memory;
    if (memory === undefined || memory.byteLength === 0) return true;
    return this.#registered(call.rank).has(memory.ptr);
  }

  #registered(rank: number): Registered {
    let registered = this.#windows.get(rank);
    if (registered === undefined) {
      registered = new Map();
      this.#windows.set(rank, registered);
    }
    return registered;
  }
}

/** Gives back what windows communicators have of a rank's memory; those that cannot be keep no others. True when all are gone. */
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

/** True when memory of a call was disposed after the call was made. */
export function isDisposed({ send, recv }: RankCall): boolean {
  return send?.disposed === true || recv?.disposed === true;
}

/** The memory of a buffer that is there. */
function memoryOf(call: RankCall, side: "send" | "recv"): Memory {
  return (call[side] as NonNullable<RankCall["send"]>).allocation.memory;
}
