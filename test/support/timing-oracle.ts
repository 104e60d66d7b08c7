/**
 * When ranks are done, the slow and plain way: everything that will happen lies in one list, and the first of it by
 * time, class and sequence happens next. No code of the library.
 */

/** A step of a lane: receive, send what was received or so many elements, or both. */
export interface OracleStep {
  readonly from?: number;
  readonly to?: number;
  readonly elements: number;
}

export interface OracleLink {
  readonly latency: number;
  readonly perElement: number;
}

export interface OracleCase {
  /** Steps by rank and channel. */
  readonly lanes: readonly (readonly (readonly OracleStep[])[])[];
  readonly start: readonly number[];
  readonly latency: number;
  readonly perElement: number;
  readonly credits?: number;
  readonly links?: readonly OracleLink[];
  /** Links between two ranks, in their order. */
  readonly route?: (from: number, to: number) => readonly number[];
}

interface Message {
  readonly elements: number;
  readonly sendStart: number;
  arrival?: number;
  tail: number;
}

interface Channel {
  readonly sent: Message[];
  readonly taken: number[];
  receiver?: Lane;
  sender?: Lane;
}

interface Lane {
  readonly rank: number;
  readonly channel: number;
  readonly steps: readonly OracleStep[];
  now: number;
  step: number;
  held?: number | undefined;
}

/** When each rank is done, and a line a message in the order of their numbers on each channel. */
export function oracleTimes(given: OracleCase): { finished: number[]; messages: string[] } {
  const { lanes, start, latency, perElement, credits = Infinity, links = [], route } = given;
  const list: { time: number; kind: number; sequence: number; act: () => void }[] = [];
  let sequence = 0;
  const at = (time: number, kind: number, act: () => void): void => {
    list.push({ time, kind, sequence: sequence++, act });
  };
  const sendPort = [...start];
  const recvPort = [...start];
  const linkFree = links.map(() => 0);
  const channels = new Map<string, Channel>();
  const messages: string[] = [];
  const channelOf = (from: number, to: number, channel: number): Channel => {
    const key = `${from}>${to}/${channel}`;
    const found = channels.get(key) ?? { sent: [], taken: [] };
    channels.set(key, found);
    return found;
  };
  const stepped = (lane: Lane): void => {
    lane.held = undefined;
    lane.step++;
  };
  const plan = (lane: Lane): void => {
    const step = lane.steps[lane.step];
    if (step === undefined) return;
    if (step.from === undefined || lane.held !== undefined) {
      at(lane.now, 1, () => send(lane, step));
      return;
    }
    const channel = channelOf(step.from, lane.rank, lane.channel);
    const message = channel.sent[channel.taken.length];
    if (message?.arrival === undefined) channel.receiver = lane;
    else at(Math.max(lane.now, message.arrival), 1, () => receive(lane, step, channel, message));
  };
  const receive = (lane: Lane, step: OracleStep, channel: Channel, message: Message): void => {
    const began = Math.max(message.arrival!, recvPort[lane.rank]!);
    const ended = Math.max(began + message.elements * perElement, message.tail);
    recvPort[lane.rank] = ended;
    lane.now = Math.max(lane.now, ended);
    const { sendStart, elements } = message;
    const who = `${step.from}>${lane.rank}/${lane.channel}`;
    const sent = `${sendStart}-${sendStart + elements * perElement}`;
    messages.push(`${who} #${channel.taken.length} ${elements} ${sent} ${began}-${ended}`);
    channel.taken.push(ended);
    const waiting = channel.sender;
    if (waiting !== undefined) {
      delete channel.sender;
      at(Math.max(waiting.now, ended + latency), 1, () =>
        send(waiting, waiting.steps[waiting.step]!),
      );
    }
    if (step.to === undefined) stepped(lane);
    else lane.held = elements;
    plan(lane);
  };
  const send = (lane: Lane, step: OracleStep): void => {
    const channel = channelOf(lane.rank, step.to!, lane.channel);
    const before = channel.sent.length - credits;
    if (before >= 0) {
      const taken = channel.taken[before];
      if (taken === undefined) {
        channel.sender = lane;
        return;
      }
      if (taken + latency > lane.now) {
        lane.now = taken + latency;
        at(lane.now, 1, () => send(lane, step));
        return;
      }
    }
    const elements = lane.held ?? step.elements;
    const sendStart = Math.max(lane.now, sendPort[lane.rank]!);
    sendPort[lane.rank] = sendStart + elements * perElement;
    const message: Message = { elements, sendStart, tail: sendPort[lane.rank]! };
    channel.sent.push(message);
    travel(message, channel, [...(route?.(lane.rank, step.to!) ?? [])], sendStart);
    stepped(lane);
    plan(lane);
  };
  const travel = (message: Message, channel: Channel, ahead: number[], time: number): void => {
    const link = ahead.shift();
    if (link === undefined) {
      message.arrival = time + latency;
      message.tail += latency;
      const waiting = channel.receiver;
      if (waiting === undefined) return;
      delete channel.receiver;
      plan(waiting);
      return;
    }
    at(time, 0, () => {
      const begins = Math.max(time, linkFree[link]!);
      linkFree[link] = begins + message.elements * links[link]!.perElement;
      message.tail = Math.max(message.tail, linkFree[link]!) + links[link]!.latency;
      travel(message, channel, ahead, begins + links[link]!.latency);
    });
  };
  const all = lanes.flatMap((own, rank) =>
    own.map((steps, channel): Lane => ({ rank, channel, steps, now: start[rank]!, step: 0 })),
  );
  for (const lane of all) plan(lane);
  while (list.length > 0) {
    list.sort((a, b) => a.time - b.time || a.kind - b.kind || a.sequence - b.sequence);
    list.shift()!.act();
  }
  const finished = start.map((_, rank) =>
    Math.max(sendPort[rank]!, ...all.filter((lane) => lane.rank === rank).map(({ now }) => now)),
  );
  return { finished, messages: messages.sort() };
}
