/** The host's side of a widget, as anywidget hands it over, and the messages that pass. */
import type { DeltaShot, DetailShot, FoundShot, Snapshot, TimesShot } from '../generated/views';

export interface Model {
  get(name: 'snapshot'): Snapshot | Record<string, never>;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: ToPython): void;
}

export type Action = 'stop' | 'cancel' | 'resume' | 'accept';

/** Browser to Python. Custom messages only: trait writes from here can get stuck in a busy kernel. */
export type ToPython =
  | { type: 'hello'; deltas: true }
  | { type: 'ping'; n: number }
  | { type: 'answer'; prompt: string; generation: number; value: unknown; request: string }
  | { type: Action; request: string }
  | { type: 'detail'; node: string }
  | { type: 'find'; text: string }
  | { type: 'times' };

/** Python to browser, beside the snapshot. */
export type FromPython =
  | { type: 'pong'; n: number }
  | { type: 'ack'; request: string; ok: boolean; text: string }
  | ({ type: 'delta' } & DeltaShot)
  | ({ type: 'detail' } & DetailShot)
  | ({ type: 'found' } & FoundShot)
  | ({ type: 'times' } & TimesShot);

let counter = 0;

/** Names one click, so that Python acts once on it. `crypto.randomUUID` does not exist on plain http. */
export function requestId(): string {
  counter += 1;
  return `${Date.now().toString(36)}-${counter}-${Math.random().toString(36).slice(2, 8)}`;
}
