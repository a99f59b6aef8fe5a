/** Durations and ages in the same words as Python's `views/words.py`. */

const two = (n: number): string => String(n).padStart(2, '0');

/** `0.31 s`, `12 s`, `1 m 12 s`, `2 h 05 m`, `3 d 4 h`. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 0.005) {
    return '< 0.01 s';
  }
  if (s < 0.995) {
    return `${s.toFixed(2)} s`;
  }
  if (s < 9.95) {
    return `${s.toFixed(1)} s`;
  }
  return whole(Math.floor(s + 0.5));
}

/** The same without fractions, for what ticks. */
export function ticking(seconds: number): string {
  return whole(Math.floor(Math.max(0, seconds)));
}

function whole(s: number): string {
  if (s < 60) {
    return `${s} s`;
  }
  if (s < 3600) {
    return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  }
  if (s < 86400) {
    return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} m`;
  }
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** `just now`, `2 min ago`, `3 h ago`, `5 days ago`. */
export function ago(seconds: number): string {
  if (seconds < 45) {
    return 'just now';
  }
  if (seconds < 3570) {
    return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  }
  if (seconds < 86400) {
    return `${Math.round(seconds / 3600)} h ago`;
  }
  const days = Math.round(seconds / 86400);
  return `${days} day${days === 1 ? '' : 's'} ago`;
}

/** The exact time in the reader's zone, for a tooltip. */
export function exact(epoch: number): string {
  return new Date(epoch * 1000).toLocaleString();
}

export const number = (n: number): string => n.toLocaleString('en');
export const count = (n: number, one: string): string => `${number(n)} ${one}${n === 1 ? '' : 's'}`;
