// Makes the style sheet small enough to travel in every view: what repeats in it is written once and named by one letter.

// Letters that a style sheet hardly contains, those of one byte first; what it does contain is not used.
const LETTERS = [...'~^|?&_JQXZYKWGHPUV', ...'ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþĀāĂăĄąĆćĈĉĊċČčĎďĐđĒēĔĕĖėĘęĚěĜĝĞğĠġĢģĤĥĦħĨĩĪīĬĭĮįİıĲĳĴĵ'];
const LONGEST = 28;

/** A JavaScript module whose default export is `text`. */
export function packed(text) {
  const words = [];
  let short = text;
  for (const letter of LETTERS.filter(letter => !text.includes(letter))) {
    const word = best(short, Buffer.byteLength(letter));
    if (word === null) {
      break;
    }
    short = short.replaceAll(word, letter);
    words.push(letter + word);
  }
  // Last in, first out: a word may contain letters of earlier ones.
  const table = JSON.stringify(words.reverse().join('\n'));
  return `export default ${table}.split("\\n").reduce((css, word) => css.replaceAll(word[0], word.slice(1)), ${JSON.stringify(short)});`;
}

/** The word that saves most when it is written once; null where none saves anything. */
function best(text, size) {
  const counts = new Map();
  for (let length = 3; length <= LONGEST; length++) {
    for (let at = 0; at + length <= text.length; at++) {
      const word = text.slice(at, at + length);
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
  }
  let [found, most] = [null, 4];
  for (const [word, count] of counts) {
    if (count > 1 && !/["\\\n]/.test(word) && (count - 1) * word.length > most) {
      const times = text.split(word).length - 1; // without overlaps
      const saved = times * (word.length - size) - word.length - size - 2;
      if (saved > most) {
        [found, most] = [word, saved];
      }
    }
  }
  return found;
}
