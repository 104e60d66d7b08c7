/** A process that can open no more files: its connections and listeners fail as they do at the limit of the system. */
import { Server, Socket } from "node:net";
import { vi } from "vitest";

function fault(call: string): Error {
  return Object.assign(new Error(`${call} EMFILE`), { code: "EMFILE", syscall: call });
}

/** The connection of that number, from 0 on, cannot be opened; without one, none can. */
export function failConnections(number?: number): void {
  const connect = Socket.prototype.connect as (...args: unknown[]) => Socket;
  let count = 0;
  const failing = function (this: Socket, ...args: unknown[]): Socket {
    if (number !== undefined && count++ !== number) return connect.apply(this, args);
    process.nextTick(() => this.destroy(fault("connect")));
    return this;
  };
  vi.spyOn(Socket.prototype, "connect").mockImplementation(failing as Socket["connect"]);
}

/** Listeners with these options cannot be opened. */
export function failListeners(isOne: (options: object) => boolean): void {
  const listen = Server.prototype.listen as (...args: unknown[]) => Server;
  const failing = function (this: Server, ...args: unknown[]): Server {
    if (!isOne(args[0] as object)) return listen.apply(this, args);
    process.nextTick(() => this.emit("error", fault("listen")));
    return this;
  };
  vi.spyOn(Server.prototype, "listen").mockImplementation(failing as Server["listen"]);
}
