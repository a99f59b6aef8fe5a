import { describe, expect, it } from 'vitest';
import { initial, questionTarget, reduce, sentFor, type State } from '../src/widget/state';
import { box, question, snap } from './snap';

const start = (): State => initial(snap(), 998);

describe('the reducer', () => {
  it('keeps the difference between the clocks', () => {
    expect(start().skew).toBe(2);
    expect(reduce(start(), { type: 'snapshot', snap: snap({ now: 1100 }), at: 1103 }).skew).toBe(-3);
  });

  it('passes over a snapshot that was overtaken', () => {
    const state = start();
    expect(reduce(state, { type: 'snapshot', snap: snap({ revision: 4 }), at: 999 })).toBe(state);
  });

  it('forgets a request when its question is gone, and keeps it while it is open', () => {
    const target = questionTarget('prompt:go:#1', 1);
    let state = initial(snap({ questions: [question('prompt:go:#1')] }), 0);
    state = reduce(state, { type: 'sent', request: 'r1', target });
    state = reduce(state, { type: 'snapshot', snap: snap({ revision: 6, questions: [question('prompt:go:#1')] }), at: 0 });
    expect(sentFor(state, target)?.done).toBe(false);
    state = reduce(state, { type: 'ack', request: 'r1', ok: false, text: 'too late' });
    expect(sentFor(state, target)).toMatchObject({ done: true, ok: false, text: 'too late' });
    state = reduce(state, { type: 'snapshot', snap: snap({ revision: 7 }), at: 0 });
    expect(sentFor(state, target)).toBeUndefined();
  });

  it('takes a question that is asked again for a new one', () => {
    const again = snap({ revision: 6, questions: [question('prompt:go:#1', 2)] });
    let state = reduce(initial(snap(), 0), { type: 'sent', request: 'r1', target: questionTarget('prompt:go:#1', 1) });
    state = reduce(state, { type: 'snapshot', snap: again, at: 0 });
    expect(sentFor(state, questionTarget('prompt:go:#1', 2))).toBeUndefined();
  });

  it('ignores an answer to a request that it does not know', () => {
    const state = start();
    expect(reduce(state, { type: 'ack', request: 'other', ok: true, text: '' })).toBe(state);
  });

  it('shows details of the opened node only', () => {
    const detail = { node: 'a', label: 'a', kind: 'step', status: 'completed', where: '', facts: [], inputs: '', output: '',
      said: '',
      shown: [], failure: null, log: [], logLeftOut: 0, members: [], membersLeftOut: 0 }; // prettier-ignore
    let state = reduce(start(), { type: 'open', node: 'a' });
    expect(reduce(state, { type: 'detail', detail: { ...detail, node: 'b' } }).detail).toBeNull();
    state = reduce(state, { type: 'detail', detail });
    expect(state.detail?.label).toBe('a');
    expect(reduce(state, { type: 'open', node: 'b' }).detail).toBeNull();
    expect(reduce(state, { type: 'detail', detail: { ...detail, node: '' } }).log?.label).toBe('a');
  });

  it('closes a stack that is not drawn any more', () => {
    const state = reduce(initial(snap({ graph: { ...snap().graph, boxes: [box('stack:x')] } }), 0), { type: 'open', node: 'stack:x' });
    expect(reduce(state, { type: 'snapshot', snap: snap({ revision: 6 }), at: 0 }).open).toBeNull();
  });
});
