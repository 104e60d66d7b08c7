import type { Backend } from "twinccl";
import type { Session, Work } from "twinccl/backend";
import { memoryOf } from "../../../src/api/buffer.ts";

/** A backend that does everything right and then flips one bit of one element on one rank. */
export function corrupting(backend: Backend, rank: number): Backend {
  return {
    ...backend,
    open: async (request) => {
      const session = await backend.open(request);
      // A proxy, so that whatever else a session can do stays as it is.
      return new Proxy(session, {
        get(target, key) {
          if (key === "execute") return (work: Work) => executeWrong(target, work, rank);
          const value = Reflect.get(target, key, target);
          return typeof value === "function" ? value.bind(target) : value;
        },
      });
    },
  };
}

async function executeWrong(session: Session, work: Work, rank: number): Promise<void> {
  await session.execute(work);
  const recv = "calls" in work ? work.calls[rank]?.recv : undefined;
  if (recv === undefined || recv.length === 0) return;
  const memory = memoryOf(recv);
  const last = recv.byteOffset + recv.byteLength - 1;
  const byte = new Uint8Array(1);
  await memory.read(last, byte);
  memory.write(last, Uint8Array.of(byte[0]! ^ 1));
}
