//! The metadata store, in the bridge's own bytes.

use handler_api::ApiError;
use handler_api::control::Nothing;
use handler_api::metadata::{
    DeleteValue, GetValue, ListChildren, Path, PathList, PutRequest, PutValue, Value, WatchPath,
};

use super::translate::Translated;
use super::{Reader, Writer};

impl Translated for GetValue {
    fn write(request: &Path, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.path);
        Ok(())
    }

    fn read(request: &Path, reader: &mut Reader<'_>) -> Result<Value, ApiError> {
        Ok(Value {
            path: request.path.clone(),
            value: reader.bytes()?.to_vec().into(),
            version: reader.i64()?,
        })
    }
}

impl Translated for PutValue {
    fn write(request: &PutRequest, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.path)
            .bytes(&request.value)
            .optional_i64(request.expected_version);
        Ok(())
    }

    fn read(request: &PutRequest, reader: &mut Reader<'_>) -> Result<Value, ApiError> {
        Ok(Value {
            path: request.path.clone(),
            value: request.value.clone(),
            version: reader.i64()?,
        })
    }
}

impl Translated for DeleteValue {
    fn write(request: &PutRequest, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.path)
            .optional_i64(request.expected_version);
        Ok(())
    }

    fn read(_: &PutRequest, _: &mut Reader<'_>) -> Result<Nothing, ApiError> {
        Ok(Nothing {})
    }
}

impl Translated for ListChildren {
    fn write(request: &Path, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.path);
        Ok(())
    }

    fn read(_: &Path, reader: &mut Reader<'_>) -> Result<PathList, ApiError> {
        let paths = reader.texts()?;
        Ok(PathList { paths })
    }
}

impl Translated for WatchPath {
    fn write(request: &Path, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.path);
        Ok(())
    }

    fn read(_: &Path, _: &mut Reader<'_>) -> Result<Nothing, ApiError> {
        Ok(Nothing {})
    }
}
