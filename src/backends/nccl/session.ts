/** An open world on GPUs: hands each complete call to NCCL on the streams of the ranks that live in this process. */
import {
  type CallSet,
  type Capabilities,
  CommAbortedError,
  type CommInfo,
  type Explanation,
  InvalidArgumentError,
  type Memory,
  type Question,
  type RankCall,
  type Session,
  type Transfer,
  UnsupportedError,
} from "../../api/index.ts";
import { initAll, type Member, type NcclCommunicator, split } from "./communicators.ts";
import { CurrentDevice, Device } from "./device.ts";
import { type Part, type Step, stepsOf } from "./issue.ts";
import type { Libraries } from "./libraries.ts";
import { LocalRank } from "./local-rank.ts";
import { dataTypes, dtypeRefusal } from "./mapping.ts";
import { Progress } from "./progress.ts";
import type { ConfigFields } from "./sys/layouts.ts";

/** What `nccl()` was given, checked. */
export interface NcclSettings {
  readonly devices: readonly number[];
  readonly config: ConfigFields;
}

/** The ranks of one world, all in this process. */
export class NcclSession implements Session {
  readonly backend = "nccl";
  readonly queues = true;
  readonly size: number;
  readonly capabilities: Capabilities = {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: false,
  };
  readonly #libraries: Libraries;
  readonly #settings: NcclSettings;
  readonly #current: CurrentDevice;
  readonly #progress: Progress;
  readonly #locals: readonly LocalRank[];
  readonly #comms = new Map<number, NcclCommunicator>();
  readonly #capability: number;
  /** Communicators on their way out. */
  readonly #ending: Promise<void>[] = [];
  #closing: Promise<void> | undefined;

  constructor(libraries: Libraries, settings: NcclSettings, name: string) {
    const { cuda, nccl } = libraries;
    const { devices, config } = settings;
    this.size = devices.length;
    this.#libraries = libraries;
    this.#settings = settings;
    this.#current = new CurrentDevice(cuda);
    this.#progress = new Progress(() => this.#check());
    this.#capability = Math.min(...devices.map((device) => Number(cuda.computeCapability(device))));
    this.#locals = devices.map(
      (index, rank) => new LocalRank(rank, new Device(cuda, this.#current, index), this.#progress),
    );
    const ranks = devices.map((_, rank) => rank);
    const world: CommInfo = { id: 0, name, ranks };
    this.#comms.set(0, initAll(nccl, this.#current, world, this.#locals, config));
  }

  device(rank: number): string {
    return this.#local(rank).device.name;
  }

  allocate(rank: number, byteLength: number): Memory {
    return this.#local(rank).allocate(byteLength);
  }

  borrow(rank: number): Memory {
    throw new InvalidArgumentError(
      {
        headline: "host memory cannot be used in place on a GPU",
        hint: "const buffer = comm.alloc(dtype, length).copyFrom(array)",
      },
      { rank },
    );
  }

  refusal({ dtype }: Question): string | undefined {
    if (dtype === undefined) return undefined;
    return dtypeRefusal(dtype, this.#libraries.ncclVersion, this.#capability);
  }

  explain(_question: Question): Explanation {
    throw new UnsupportedError({ headline: "explain: not built in this version" });
  }

  wakeOrder(set: CallSet | undefined): readonly number[] {
    return Array.from({ length: set?.calls.length ?? this.size }, (_, rank) => rank);
  }

  execute({ comm: info, calls }: CallSet): Promise<void> {
    const comm = this.#comm(info);
    const parts: Part[] = [];
    try {
      for (const call of calls) parts.push(partOf(comm, call));
      for (const step of stepsOf(calls[0] as RankCall, comm.size)) this.#issue(step, parts);
    } finally {
      for (const { call, op } of parts) comm.endOp(call, op);
    }
    const devices = calls.map(({ rank }) => (comm.members.get(rank) as Member).local.device);
    return this.#progress.after(devices, comm);
  }

  exchange(info: CommInfo, transfers: readonly Transfer[]): Promise<void> {
    const comm = this.#comm(info);
    const { nccl } = this.#libraries;
    const devices: Device[] = [];
    nccl.group(() => {
      for (const { send, recv } of transfers) {
        const [from, to] = [comm.members.get(send.rank), comm.members.get(recv.rank)] as [
          Member,
          Member,
        ];
        devices.push(from.local.device, to.local.device);
        const { count, dtype } = send;
        if (count === 0 || dtype === undefined) continue;
        const type = dataTypes[dtype];
        nccl.send(
          send.send?.ptr ?? 0n,
          count,
          type,
          to.rank,
          from.handle,
          from.local.device.stream,
        );
        nccl.recv(recv.recv?.ptr ?? 0n, count, type, from.rank, to.handle, to.local.device.stream);
      }
    });
    return this.#progress.after(devices, comm);
  }

  /** Makes the communicators of a complete split. */
  split(set: CallSet, children: readonly CommInfo[]): void {
    const { nccl } = this.#libraries;
    const parent = this.#comm(set.comm);
    const made = split(nccl, this.#current, parent, set.calls, children, this.#settings.config);
    for (const comm of made) this.#comms.set(comm.info.id, comm);
  }

  /** Ends a communicator under its running calls, whose promises reject; its kernels leave the devices. */
  abort(info: CommInfo, reason: unknown): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#comms.delete(info.id);
    this.#progress.giveUp(comm, reason);
    this.#ending.push(comm.abort());
  }

  /** Gives the communicator's resources back. */
  forget(info: CommInfo): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#comms.delete(info.id);
    const devices = [...comm.members.values()].map(({ local }) => local.device);
    this.#ending.push(this.#progress.after(devices).then(() => comm.destroy()));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** One step of a call: a group of its own when more than one rank or more than one NCCL call is in it. */
  #issue(step: Step, parts: readonly Part[]): void {
    const { nccl } = this.#libraries;
    nccl.group(() => {
      for (const part of parts) step(nccl, part);
    });
  }

  /** Newest communicators first, then memory and streams. What an abort could not free in time stays behind. */
  async #close(): Promise<void> {
    await Promise.allSettled(this.#ending);
    const devices = this.#locals.map(({ device }) => device);
    await this.#progress.after(devices).catch(() => undefined);
    for (const comm of [...this.#comms.values()].reverse()) comm.destroy();
    this.#comms.clear();
    this.#current.forget();
    for (const local of this.#locals) local.release();
    this.#progress.release();
  }

  #check(): void {
    for (const comm of this.#comms.values()) comm.check();
  }

  #comm({ id, name }: CommInfo): NcclCommunicator {
    const comm = this.#comms.get(id);
    if (comm !== undefined) return comm;
    throw new CommAbortedError(
      {
        headline: `"${name}" was aborted, and its NCCL communicators with it`,
        hint: "world.rebuild() makes new ones",
      },
      { comm: name },
    );
  }

  #local(rank: number): LocalRank {
    return this.#locals[rank] as LocalRank;
  }
}

function partOf(comm: NcclCommunicator, call: RankCall): Part {
  const { handle, local } = comm.members.get(call.rank) as Member;
  const { device, scratch } = local;
  const op = comm.beginOp(call);
  return { call, comm: handle, stream: device.stream, op, size: comm.size, scratch };
}
