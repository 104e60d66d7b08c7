/** The two sides of a comparison: a world in this process, or a job with a process for each rank, which works on requests. */
import {
  type Backend,
  type Communicator,
  connect,
  createWorld,
  type Explanation,
  type Question,
  UnsupportedError,
  type World,
} from "../../api/index.ts";
import type { Context } from "../context.ts";
import { askLauncher } from "../launch/job.ts";
import { loadProgram, ofRank, type RankProgram, withExitReport } from "../program-file.ts";
import { type Case, type CaseKey, caseOf, type Output, outputsOf } from "./cases.ts";
import { readBack } from "./file-results.ts";

/** One of the two backends and its name. */
export interface Side {
  readonly name: string;
  readonly backend: Backend;
  /** Starts its ranks, which then run `serveRank`; without it they share this process. */
  readonly start?: RankStarter | undefined;
}

/** Starts so many processes; resolves to the exit status of all. */
type RankStarter = (size: number, onMessage: RankListener) => Promise<number>;

type Reply = (request: RankRequest) => void;

type RankListener = (rank: number, message: unknown, reply: Reply) => void;

/** The open ranks of one side. */
export interface SideWorld {
  /** Explains a call, where the ranks are in this process. */
  readonly explain?: (question: Question) => Explanation;
  /** The parts of plans that determine the bits; `undefined` where the backend explains none. */
  plans(questions: readonly Question[]): Promise<readonly (string | undefined)[]>;
  /** Every rank's output of every case, by rank and case. */
  outputs(cases: readonly Case[]): Promise<(readonly Output[])[]>;
  /** The results of a program, loaded from a file, by rank. */
  results(file: string, program: RankProgram): Promise<readonly unknown[]>;
  close(): Promise<void>;
}

/** Opens the ranks of one side. */
export async function openSide(
  { backend, start }: Side,
  size: number,
  callSites = false,
): Promise<SideWorld> {
  if (start !== undefined) return new RankJob(size, start);
  return new LocalSide(await createWorld({ backend, size, name: "verify", callSites }));
}

/** All ranks in this process. */
class LocalSide implements SideWorld {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  readonly explain = (question: Question): Explanation => this.#world.explain(question);

  async plans(questions: readonly Question[]): Promise<readonly (string | undefined)[]> {
    return questions.map((question) => planText(this.#world, question));
  }

  outputs(cases: readonly Case[]): Promise<(readonly Output[])[]> {
    return this.#world.run((comm) => outputsOf(comm, cases));
  }

  results(_: string, program: RankProgram): Promise<readonly unknown[]> {
    return this.#world.run(async (comm) => readBack(await program(comm)));
  }

  close(): Promise<void> {
    return this.#world.close();
  }
}

/** The parts of a plan that determine the bits; `undefined` if the backend explains none. */
function planText(of: Pick<World, "explain">, question: Question): string | undefined {
  try {
    const { algorithm, protocol, channels, chunks } = of.explain(question);
    return JSON.stringify({ algorithm, protocol, channels, chunks });
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}

/** The processes of a side have ended before their work; they have printed why. */
export class JobEndedError extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`the ranks have ended with status ${status}`);
    this.status = status;
  }
}

/** Work of a rank in a process of its own. */
type RankRequest =
  | { readonly plans: readonly Question[] }
  | { readonly cases: readonly CaseKey[] }
  | { readonly file: string }
  | { readonly close: true };

/** A rank's message to its launcher. */
interface RankMessage {
  /** False for the first message, after the rank has opened. */
  readonly isAnswer: boolean;
  readonly answer?: unknown;
}

/**
 * Joins the job as one rank, and works on the requests of the launcher until it closes the rank. A failed rank leaves the job by
 * the end of its process.
 */
export async function serveRank({ backend }: Side, context: Pick<Context, "err">): Promise<void> {
  const comm = await connect({ backend, name: "verify", callSites: true });
  let message: RankMessage = { isAnswer: false };
  for (;;) {
    const request = (await askLauncher(message)) as RankRequest;
    if ("close" in request) return comm.close();
    message = { isAnswer: true, answer: await answerTo(request, comm, context) };
  }
}

async function answerTo(
  request: Exclude<RankRequest, { readonly close: true }>,
  comm: Communicator,
  context: Pick<Context, "err">,
): Promise<unknown> {
  if ("plans" in request) return request.plans.map((question) => planText(comm, question));
  if ("cases" in request) return outputsOf(comm, request.cases.map(caseOf));
  const { file } = request;
  return withExitReport("verify", context, async (watch) => {
    const program = watch(await loadProgram(file));
    const result = await readBack(await ofRank(comm, program));
    assertSendable(result, comm);
    return result;
  });
}

/** Refuses a result that cannot be sent to another process. */
function assertSendable(result: unknown, { rank, size }: Communicator): void {
  try {
    structuredClone(result);
  } catch (cause) {
    throw new UnsupportedError(
      {
        headline: `verify: the result of rank ${rank} cannot be sent to be compared: ${(cause as Error).message}`,
        hint: "return data: numbers, texts, arrays, buffers, plain objects",
      },
      { rank, size, cause },
    );
  }
}

/** A process for each rank. */
class RankJob implements SideWorld {
  readonly #lines: readonly RankLine[];
  readonly #ended: Promise<number>;
  /** Rejects when the processes end. */
  readonly #failed: Promise<never>;
  #isOver = false;

  constructor(size: number, start: RankStarter) {
    this.#lines = Array.from({ length: size }, () => new RankLine());
    this.#ended = start(size, (rank, message, reply) => this.#lines[rank]?.arrived(message, reply));
    this.#failed = this.#ended.then((status) => {
      this.#isOver = true;
      throw new JobEndedError(status);
    });
    this.#failed.catch(() => undefined);
  }

  async plans(plans: readonly Question[]): Promise<readonly (string | undefined)[]> {
    if (plans.length === 0) return [];
    const [first] = await this.#ask({ plans });
    return first as (string | undefined)[];
  }

  async outputs(cases: readonly Case[]): Promise<(readonly Output[])[]> {
    return (await this.#ask({ cases: cases.map(keyOf) })) as Output[][];
  }

  results(file: string): Promise<readonly unknown[]> {
    return this.#ask({ file });
  }

  async close(): Promise<void> {
    if (!this.#isOver) for (const line of this.#lines) line.send({ close: true });
    await this.#ended;
  }

  #ask(request: RankRequest): Promise<unknown[]> {
    const answers = Promise.all(this.#lines.map((line) => line.ask(request)));
    return Promise.race([answers, this.#failed]);
  }
}

/** The data of a case, without its functions. */
function keyOf({ collective, elements, ranks, dtype, op, seed, inPlace, payload }: Case): CaseKey {
  return { collective, elements, ranks, dtype, op, seed, inPlace, payload };
}

/** Requests to one rank, each after the answer to the one before. */
class RankLine {
  #next: RankRequest | undefined;
  #reply: Reply | undefined;
  #answered: ((answer: unknown) => void) | undefined;

  ask(request: RankRequest): Promise<unknown> {
    const answer = new Promise((resolve) => {
      this.#answered = resolve;
    });
    this.send(request);
    return answer;
  }

  send(request: RankRequest): void {
    this.#next = request;
    this.#pass();
  }

  /** A message of the rank: it is open, or has answered a request, and takes the next one. */
  arrived(message: unknown, reply: Reply): void {
    this.#reply = reply;
    const { answer, isAnswer } = message as RankMessage;
    if (isAnswer) this.#answered?.(answer);
    this.#pass();
  }

  #pass(): void {
    const [reply, request] = [this.#reply, this.#next];
    if (reply === undefined || request === undefined) return;
    this.#reply = undefined;
    this.#next = undefined;
    reply(request);
  }
}
