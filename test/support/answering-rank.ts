/** One rank of a launched job that does the parts its test asks for; `launched-ranks.ts` is the other end. */
import { connect, type Socket } from "node:net";
import { inspect } from "node:util";
import { sendMessage, takeMessages } from "./messages.ts";
import { type Answer, type Parts, type Request, socketVariable } from "./parts.ts";

/** Answers until the test hangs up. */
export function answerParts<C extends { readonly rank: number }>(
  comm: C,
  parts: Parts<C>,
): Promise<void> {
  const socket = connect(process.env[socketVariable] ?? "");
  let atWork = 0;
  sendMessage(socket, comm.rank);
  takeMessages(socket, (request) => {
    atWork += 1;
    void answer(socket, comm, parts, request as Request).finally(() => {
      atWork -= 1;
    });
  });
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once("close", () => {
      // A part may never end; the process does not wait for parts that are still at work.
      if (atWork > 0) process.exit(1);
      resolve();
    });
  });
}

async function answer<C>(
  socket: Socket,
  comm: C,
  parts: Parts<C>,
  { part, args }: Request,
): Promise<void> {
  const tell = (answer: Answer): void => sendMessage(socket, answer);
  try {
    const play = parts[part];
    if (play === undefined) throw new Error(`there is no part "${part}"`);
    tell({ value: await play(comm, ...(args as never)) });
  } catch (error) {
    tell({ fault: inspect(error) });
  }
}
