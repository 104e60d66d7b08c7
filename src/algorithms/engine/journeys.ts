/** Where messages are on their way through shared links, by their number in `InFlight`. */

/** The ways of the messages that are under way. */
export class Journeys {
  edge = new Int32Array(0);
  /** Links that are passed. */
  hop = new Int32Array(0);
  /** When the last byte has come as far as the head has. */
  tail = new Float64Array(0);

  /** A message leaves its sender; `capacity` is that of the pool it is in. */
  begin(message: number, edge: number, sendEnd: number, capacity: number): void {
    if (capacity > this.edge.length) this.#grow(capacity);
    this.edge[message] = edge;
    this.hop[message] = 0;
    this.tail[message] = sendEnd;
  }

  /** A message's last byte has passed a link, which is so long. */
  pass(message: number, passed: number, latency: number): void {
    this.hop[message] = (this.hop[message] as number) + 1;
    this.tail[message] = Math.max(this.tail[message] as number, passed) + latency;
  }

  #grow(capacity: number): void {
    const edge = new Int32Array(capacity);
    const hop = new Int32Array(capacity);
    const tail = new Float64Array(capacity);
    edge.set(this.edge);
    hop.set(this.hop);
    tail.set(this.tail);
    this.edge = edge;
    this.hop = hop;
    this.tail = tail;
  }
}
