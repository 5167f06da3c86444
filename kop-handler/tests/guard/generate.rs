//! Bodies made from a description: valid ones with everything that may occur, and ones that amplify.

use bytes::BufMut;

use crate::describe::{Description, Field, Kind};
use crate::random::Random;

/// A valid body, in the one form in which the codec writes it.
pub(crate) fn body(description: &Description, version: i16, random: &mut Random) -> Vec<u8> {
    let mut writer = Writer {
        out: Vec::new(),
        version,
        is_flexible: version >= description.flexible,
        random,
    };
    writer.fields(&description.fields, 3);
    writer.out
}

/// Bodies that hold as many empty elements as fit, one body per array of the description's first level.
pub(crate) fn amplifying(description: &Description, version: i16, size: usize) -> Vec<Vec<u8>> {
    let is_flexible = version >= description.flexible;
    let arrays = description
        .fields
        .iter()
        .filter(|f| f.is_array && f.versions.has(version) && f.tag.is_none());
    let mut bodies: Vec<Vec<u8>> = arrays
        .map(|array| {
            let element = empty_element(array, version, is_flexible);
            let count = size / element.len().max(1);
            let mut out = Vec::new();
            for field in &description.fields {
                if !field.versions.has(version) || field.tag.is_some() {
                    continue;
                }
                if std::ptr::eq(field, array) {
                    put_count(&mut out, is_flexible, count);
                    out.extend(element.repeat(count));
                } else {
                    empty(field, version, is_flexible, &mut out);
                }
            }
            if is_flexible {
                out.push(0);
            }
            out
        })
        .collect();
    if is_flexible {
        // As many unknown tagged fields without content as fit.
        let mut out = Vec::new();
        for field in description
            .fields
            .iter()
            .filter(|f| f.versions.has(version) && f.tag.is_none())
        {
            empty(field, version, is_flexible, &mut out);
        }
        let count = size / 4;
        put_varint(&mut out, count as u32);
        for tag in 0..count as u32 {
            put_varint(&mut out, 1000 + tag);
            out.push(0);
        }
        bodies.push(out);
    }
    bodies
}

fn empty_element(field: &Field, version: i16, is_flexible: bool) -> Vec<u8> {
    let mut out = Vec::new();
    match &field.kind {
        Kind::Struct(fields) => empty_struct(fields, version, is_flexible, &mut out),
        _ => empty_value(field, version, is_flexible, &mut out),
    }
    out
}

fn empty_struct(fields: &[Field], version: i16, is_flexible: bool, out: &mut Vec<u8>) {
    for field in fields
        .iter()
        .filter(|f| f.versions.has(version) && f.tag.is_none())
    {
        empty(field, version, is_flexible, out);
    }
    if is_flexible {
        out.push(0);
    }
}

fn empty(field: &Field, version: i16, is_flexible: bool, out: &mut Vec<u8>) {
    if field.is_array {
        put_count(out, is_flexible, 0);
    } else {
        empty_value(field, version, is_flexible, out);
    }
}

fn empty_value(field: &Field, version: i16, is_flexible: bool, out: &mut Vec<u8>) {
    match &field.kind {
        Kind::Fixed(bytes) => out.extend(vec![0; *bytes]),
        Kind::Text if is_flexible => out.push(1),
        Kind::Text => out.put_i16(0),
        Kind::Bytes => put_count(out, is_flexible, 0),
        Kind::Struct(_) if field.nullable.is_some_and(|n| n.has(version)) => out.push(0xff),
        Kind::Struct(fields) => empty_struct(fields, version, is_flexible, out),
    }
}

fn put_count(out: &mut Vec<u8>, is_flexible: bool, count: usize) {
    if is_flexible {
        put_varint(out, count as u32 + 1);
    } else {
        out.put_i32(count as i32);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Writer<'r> {
    out: Vec<u8>,
    version: i16,
    is_flexible: bool,
    random: &'r mut Random,
}

impl Writer<'_> {
    fn fields(&mut self, fields: &[Field], elements: u64) {
        let version = self.version;
        for field in fields {
            if field.versions.has(version) && field.tag.is_none() {
                self.field(field, elements, false);
            }
        }
        if self.is_flexible {
            self.tags(fields, elements);
        }
    }

    /// Known tagged fields with a value that is not their default, then unknown ones, in ascending order.
    fn tags(&mut self, fields: &[Field], elements: u64) {
        let mut tags: Vec<(u32, Vec<u8>)> = Vec::new();
        let version = self.version;
        for field in fields.iter().filter(|f| f.versions.has(version)) {
            let Some(tag) = field.tag else {
                continue;
            };
            if self.random.below(2) == 0 {
                continue;
            }
            let outer = std::mem::take(&mut self.out);
            self.field(field, elements, true);
            tags.push((tag, std::mem::replace(&mut self.out, outer)));
        }
        tags.sort();
        if self.random.below(4) == 0 {
            tags.push((
                100 + self.random.below(1 << 20) as u32,
                self.random.bytes(200),
            ));
        }
        put_varint(&mut self.out, tags.len() as u32);
        for (tag, content) in tags {
            put_varint(&mut self.out, tag);
            put_varint(&mut self.out, content.len() as u32);
            self.out.extend(content);
        }
    }

    fn field(&mut self, field: &Field, elements: u64, is_tagged: bool) {
        let may_be_null = field.nullable.is_some_and(|n| n.has(self.version)) && !is_tagged;
        let is_null = may_be_null && self.random.below(4) == 0;
        if !field.is_array {
            return self.value(field, is_null, may_be_null, elements);
        }
        if is_null {
            return self.length(4, None);
        }
        let count = u64::from(is_tagged) + self.random.below(elements + 1);
        self.length(4, Some(count as usize));
        for _ in 0..count {
            match &field.kind {
                Kind::Struct(fields) => self.fields(fields, elements.saturating_sub(1)),
                _ => self.value(field, false, false, elements),
            }
        }
    }

    fn value(&mut self, field: &Field, is_null: bool, may_be_null: bool, elements: u64) {
        match &field.kind {
            // Of a boolean only 0 and 1 come back as they were, and 1 is no default of a tagged one.
            Kind::Fixed(1) if field.tag.is_some() => self.out.push(1),
            Kind::Fixed(1) => self.out.push(self.random.below(2) as u8),
            Kind::Fixed(bytes) => {
                for _ in 0..*bytes {
                    self.out.push(1 + self.random.below(0x7e) as u8);
                }
            }
            Kind::Text | Kind::Bytes => {
                let width = if matches!(field.kind, Kind::Text) {
                    2
                } else {
                    4
                };
                if is_null {
                    return self.length(width, None);
                }
                let at_most = if self.random.below(8) == 0 { 300 } else { 6 };
                let mut content = self.random.bytes(at_most);
                content.push(b'x');
                content.iter_mut().for_each(|byte| *byte &= 0x7f);
                self.length(width, Some(content.len()));
                self.out.extend(content);
            }
            Kind::Struct(fields) => {
                if may_be_null {
                    self.out.push(if is_null { 0xff } else { 1 });
                }
                if !is_null {
                    self.fields(fields, elements);
                }
            }
        }
    }

    fn length(&mut self, width: usize, length: Option<usize>) {
        if self.is_flexible {
            put_varint(&mut self.out, length.map_or(0, |n| n as u32 + 1));
        } else if width == 2 {
            self.out.put_i16(length.map_or(-1, |n| n as i16));
        } else {
            self.out.put_i32(length.map_or(-1, |n| n as i32));
        }
    }
}
