/** Values between processes: every structure that can be cloned, to the last bit, over a socket. */
import type { Socket } from "node:net";
import { deserialize, serialize } from "node:v8";

const headBytes = 4;

/** Sends a value; throws for one that cannot cross, such as a function. */
export function sendMessage(socket: Socket, value: unknown): void {
  const body = serialize(value);
  const head = Buffer.alloc(headBytes);
  head.writeUInt32LE(body.length);
  socket.write(Buffer.concat([head, body]));
}

/** Hands over the values that come in. */
export function takeMessages(socket: Socket, take: (value: unknown) => void): void {
  let bytes = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= headBytes) {
      const end = headBytes + bytes.readUInt32LE();
      if (bytes.length < end) break;
      const body = bytes.subarray(headBytes, end);
      bytes = bytes.subarray(end);
      take(deserialize(body));
    }
  });
}

/** The value as it is on the other end. */
export function crossed<T>(value: T): T {
  return deserialize(serialize(value)) as T;
}
