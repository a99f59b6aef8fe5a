/** The way to Python and back: messages, and noticing that the kernel is gone. */
import type { Snapshot } from '../generated/views';
import { merge } from './delta';
import { requestId, type Action, type FromPython, type Model } from './model';

const PATIENCE_MS = 3000;

export interface Listener {
  snapshot(snap: Snapshot): void;
  message(message: FromPython): void;
  gone(gone: boolean): void;
}

export class Link {
  #pings = 0;
  #snap: Snapshot | null = null;
  #lost = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private model: Model,
    private listener: Listener
  ) {
    model.on('change:snapshot', this.#onSnapshot);
    model.on('msg:custom', this.#onMessage);
    // Fires when the kernel restarted or died; whether it did is asked, not guessed.
    model.on('comm_live_update', this.#ping);
    this.#onSnapshot();
    model.send({ type: 'hello', deltas: true });
  }

  dispose(): void {
    clearTimeout(this.#timer);
    this.model.off('change:snapshot', this.#onSnapshot);
    this.model.off('msg:custom', this.#onMessage);
    this.model.off('comm_live_update', this.#ping);
  }

  answer(prompt: string, generation: number, value: unknown): string {
    const request = requestId();
    this.model.send({ type: 'answer', prompt, generation, value, request });
    return request;
  }

  act(action: Action): string {
    const request = requestId();
    this.model.send({ type: action, request });
    return request;
  }

  detail(node: string): void {
    this.model.send({ type: 'detail', node });
  }

  find(text: string): void {
    this.model.send({ type: 'find', text });
  }

  times(): void {
    this.model.send({ type: 'times' });
  }

  #onSnapshot = (): void => {
    const snap = this.model.get('snapshot');
    if ('graph' in snap) {
      this.#lost = false;
      this.#snap = snap as Snapshot;
      this.listener.snapshot(this.#snap);
    }
  };

  #onMessage = (message: FromPython): void => {
    if (message.type === 'pong') {
      if (message.n === this.#pings) {
        clearTimeout(this.#timer);
        this.listener.gone(false);
      }
      return;
    }
    if (message.type === 'delta') {
      if (message.base === this.#snap?.serial) {
        this.#snap = merge(this.#snap, message);
        this.listener.snapshot(this.#snap);
      } else if (!this.#lost) {
        this.#lost = true; // one was missed: ask for the whole, once
        this.model.send({ type: 'hello', deltas: true });
      }
      return;
    }
    this.listener.message(message);
  };

  #ping = (): void => {
    this.#pings += 1;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.listener.gone(true), PATIENCE_MS);
    this.model.send({ type: 'ping', n: this.#pings });
  };
}
