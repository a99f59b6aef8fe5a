import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Snapshot } from '../src/generated/views';
import { Link } from '../src/widget/link';
import type { FromPython, Model, ToPython } from '../src/widget/model';
import { snap } from './snap';

class FakeModel implements Model {
  sent: ToPython[] = [];
  handlers = new Map<string, (...args: never[]) => void>();
  get(): Snapshot {
    return snap();
  }
  on(event: string, callback: (...args: never[]) => void): void {
    this.handlers.set(event, callback);
  }
  off(event: string): void {
    this.handlers.delete(event);
  }
  send(content: ToPython): void {
    this.sent.push(content);
  }
  fire(event: string, ...args: unknown[]): void {
    (this.handlers.get(event) as ((...a: unknown[]) => void) | undefined)?.(...args);
  }
}

let model: FakeModel;
let gone: boolean[];
let link: Link;

beforeEach(() => {
  vi.useFakeTimers();
  model = new FakeModel();
  gone = [];
  link = new Link(model, { snapshot: () => undefined, message: (_: FromPython) => undefined, gone: g => gone.push(g) });
});
afterEach(() => void vi.useRealTimers());

it('says hello, and asks whether the kernel lives when its connection changed', () => {
  expect(model.sent).toEqual([{ type: 'hello', deltas: true }]);
  model.fire('comm_live_update');
  expect(model.sent[1]).toEqual({ type: 'ping', n: 1 });
  vi.advanceTimersByTime(2900);
  expect(gone).toEqual([]);
  vi.advanceTimersByTime(200);
  expect(gone).toEqual([true]);
});

it('a pong to the newest ping is life, one to an older ping is not', () => {
  model.fire('comm_live_update');
  model.fire('comm_live_update');
  model.fire('msg:custom', { type: 'pong', n: 1 });
  vi.advanceTimersByTime(4000);
  expect(gone).toEqual([true]);
  model.fire('comm_live_update');
  model.fire('msg:custom', { type: 'pong', n: 3 });
  vi.advanceTimersByTime(4000);
  expect(gone).toEqual([true, false]);
});

it('names every click differently', () => {
  const first = link.answer('prompt:go:#1', 1, true);
  expect(link.act('stop')).not.toBe(first);
  expect(model.sent[1]).toEqual({ type: 'answer', prompt: 'prompt:go:#1', generation: 1, value: true, request: first });
});

it('lets go of the model', () => {
  link.dispose();
  expect(model.handlers.size).toBe(0);
});
