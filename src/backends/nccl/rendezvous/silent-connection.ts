/**
 * The connection beside the one on which a rank and the store speak: nothing is said there, so that the system tells when the
 * machine at its other end is gone.
 *
 * TCP's keepalive asks the other machine, not its process: one that computes without returning to its event loop, or is
 * stopped, is answered for by its kernel, however long that lasts. But it asks only where nothing is under way. What was
 * written to a machine that is gone stays under way, and is sent again and again for a quarter of an hour before the system
 * gives up.
 */
import type { FramedSocket } from "./framed-socket.ts";
import { WireError } from "./wire.ts";

/** How long the connection on which is spoken may take to tell its own end, which says more. */
const ownEndMs = 1_000;

/** From now on the end of the silent connection is that of the spoken one too, and the other way round. */
export function standBeside(silent: FramedSocket, spoken: FramedSocket): void {
  silent.socket.unref();
  silent.listener = {
    frame: () => {
      throw new WireError("a frame where nothing is to be said");
    },
    ended: (reason) => {
      // After a standstill of this process what has come is read first.
      setTimeout(() => setImmediate(() => spoken.end(reason)), ownEndMs).unref();
    },
  };
  if (spoken.socket.destroyed) silent.destroy();
  else spoken.socket.once("close", () => silent.destroy());
}
