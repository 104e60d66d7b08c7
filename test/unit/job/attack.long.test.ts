/** Memory of a store in a process of its own under attack: bounded, whichever part of a handshake strangers hold. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createConnection, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { speaker } from "./stores.ts";

const server = new URL("../../../dist/job/server.js", import.meta.url).href;
const jobId = "attacked";

/** Prints its port, then its memory and the connections that it has dropped for every line that it reads. */
const program = `
  const { StoreServer } = await import(${JSON.stringify(server)});
  const [secret] = process.argv.slice(-1);
  const store = await StoreServer.listen({ jobId: "${jobId}", size: 2, hosted: false, secret });
  let most = 0;
  const look = () => { most = Math.max(most, process.memoryUsage().rss); };
  setInterval(look, 20);
  process.stdin.on("data", () => {
    look();
    const dropped = [...store.dropped.values()].reduce((sum, count) => sum + count, 0);
    console.log(JSON.stringify({ rss: process.memoryUsage().rss, most, dropped }));
  });
  console.log(store.port);
`;

/** Memory of the process, in bytes, and its dropped connections. */
interface State {
  readonly rss: number;
  readonly most: number;
  readonly dropped: number;
}

async function attacked(secret: string) {
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, "--", secret], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill());
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const state = async (): Promise<State> => {
    child.stdin.write("?\n");
    return JSON.parse(String((await lines.next()).value)) as State;
  };
  return { port, state };
}

/** Opens connections that say something and then nothing. */
async function connections(port: number, count: number, said: Buffer): Promise<Socket[]> {
  return await Promise.all(
    Array.from(
      { length: count },
      () =>
        new Promise<Socket>((resolve) => {
          const socket = createConnection({ host: "127.0.0.1", port }, () => {
            socket.write(said);
            resolve(socket);
          });
          socket.on("error", () => resolve(socket)).resume();
        }),
    ),
  );
}

/** A record of TLS that begins a hello of 128 KiB, without its end. */
function longHello(): Buffer {
  const parts = [Buffer.from("010001ff000303", "hex"), Buffer.alloc(100_000, 1)];
  const body = Buffer.concat(parts);
  const records: Buffer[] = [];
  for (let at = 0; at < body.length; at += 16_384) {
    const part = body.subarray(at, at + 16_384);
    const head = Buffer.from("1603010000", "hex");
    head.writeUInt16BE(part.length, 3);
    records.push(head, part);
  }
  return Buffer.concat(records);
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

test.each([
  ["1,000 silent connections", Buffer.alloc(0)],
  ["1,000 connections that hold most of a hello of 128 KiB", longHello()],
  ["1,000 connections that claim a record of TLS and hold it", Buffer.from("1603014000", "hex")],
])(
  "%s",
  async (name, said) => {
    const secret = randomBytes(32).toString("hex");
    const { port, state } = await attacked(secret);
    const before = await state();
    const open = await connections(port, 1_000, said);
    await expect.poll(async () => (await state()).dropped).toBeGreaterThanOrEqual(936);
    const during = await state();
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const members = await Promise.all(
      [0, 1].map((rank) => rendezvous.join({ jobId, rank, size: 2 })),
    );
    await Promise.all(members.map((member) => member.exchange("k", new Uint8Array(1))));
    for (const socket of open) socket.destroy();
    await Promise.all(members.map((member) => member.leave()));
    const grown = during.most - before.rss;
    process.stdout.write(`${name}: the store grew by ${mebibytes(grown)} at most\n`);
    expect(grown).toBeLessThan(64 * 2 ** 20);
  },
  60_000,
);

test("1,000 connections with the secret that claim 4 GiB or hold a whole frame", async () => {
  const secret = randomBytes(32).toString("hex");
  const { port, state } = await attacked(secret);
  const before = await state();
  for (let batch = 0; batch < 20; batch++) {
    const open = await Promise.all(Array.from({ length: 50 }, () => speaker({ port, secret })));
    for (const [at, { socket }] of open.entries()) {
      const head = Buffer.from(at % 2 === 0 ? "ffffffff" : "00001000", "hex");
      socket.write(Buffer.concat([head, Buffer.alloc(4_095, 0x5b)]));
    }
    await Promise.all(open.filter((_, at) => at % 2 === 0).map(({ ended }) => ended));
    for (const { socket } of open) socket.destroy();
  }
  await expect.poll(async () => (await state()).dropped).toBe(1_000);
  const grown = (await state()).most - before.rss;
  process.stdout.write(`frames of 4 GiB: the store grew by ${mebibytes(grown)} at most\n`);
  expect(grown).toBeLessThan(64 * 2 ** 20);
}, 60_000);
